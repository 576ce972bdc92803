package importing

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/traffic"
)

// post is a post of a Mattermost channel.
type post struct {
	createdAt int64 // milliseconds since 1970
	author    string
}

// posts has the newest posts of each conversation, in ascending order. It has at most MaxUnread
// posts per conversation, because older posts never count as unread.
type posts map[string][]post

// channels has the posts of an export, and its archived channels.
type channels struct {
	posts
	// archived has the conversations whose channel is archived.
	archived map[string]bool
}

// exported is a line of a bulk export, with the fields that an import needs.
type exported struct {
	Type string `json:"type"`
	User *struct {
		Username string `json:"username"`
		removed
		Teams []struct {
			Name     string `json:"name"`
			Channels []struct {
				Name string `json:"name"`
				membership
			} `json:"channels"`
		} `json:"teams"`
	} `json:"user"`
	Post       *exportedPost `json:"post"`
	DirectPost *exportedPost `json:"direct_post"`
	Channel    *struct {
		Team string `json:"team"`
		Name string `json:"name"`
		removed
	} `json:"channel"`
	DirectChannel *struct {
		removed
		Members      []string `json:"members"`
		Participants []struct {
			Username string `json:"username"`
			membership
		} `json:"participants"`
	} `json:"direct_channel"`
}

// removed has the time when a channel was archived, a user was deactivated, or a post was deleted;
// 0 means never.
type removed struct {
	DeletedAt int64 `json:"deleted_at"`
	DeleteAt  int64 `json:"delete_at"`
}

func (r removed) is() bool { return r.DeletedAt > 0 || r.DeleteAt > 0 }

// membership is the state of a user in a channel.
type membership struct {
	LastViewedAt *int64 `json:"last_viewed_at"` // nil in exports by older servers and by other programs
	MentionCount int64  `json:"mention_count"`
	NotifyProps  struct {
		MarkUnread string `json:"mark_unread"`
	} `json:"notify_props"`
}

type exportedPost struct {
	Team           string   `json:"team"`
	Channel        string   `json:"channel"`
	ChannelMembers []string `json:"channel_members"`
	User           string   `json:"user"`
	Type           string   `json:"type"`
	CreateAt       int64    `json:"create_at"`
	removed
	Replies []exportedPost `json:"replies"`
}

// channelID returns the conversation of a channel of a team.
func channelID(team, channel string) string { return team + "/" + channel }

// directID returns the conversation id of a direct or group message. It contains the sorted names
// of the members, or is a hash if these names are too long for an id.
func directID(members []string) string {
	members = slices.Sorted(slices.Values(members))
	id := "@" + strings.Join(members, ",")
	if len(id) <= events.MaxIDBytes {
		return id
	}
	sum := sha256.Sum256([]byte(id))
	return "@" + hex.EncodeToString(sum[:])
}

// readChannels reads the posts and the archived channels from exports. It skips bad lines; the
// reader of rows reports them later.
func readChannels(ctx context.Context, inputs []input, advance func(done int64)) error {
	all := &channels{posts{}, map[string]bool{}}
	var before int64
	for i := range inputs {
		inputs[i].channels = all
		err := all.read(ctx, inputs[i].path, func(n int64) { advance(before + n) })
		if err != nil {
			return err
		}
		before += inputs[i].size
	}
	for id := range all.posts {
		all.cut(id)
	}
	return nil
}

func (p *channels) read(ctx context.Context, path string, advance func(n int64)) (err error) {
	src, err := traffic.OpenFile(ctx, path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	for lines := traffic.NewLines(src); ; {
		line, err := lines.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return &traffic.LineError{File: src.Name, Line: lines.Number, Err: err}
		}
		if lines.Number%chunkRows == 0 {
			advance(src.Offset())
		}
		var e exported
		if json.Unmarshal(line, &e) != nil {
			continue
		}
		switch {
		case e.Channel != nil && e.Channel.is():
			p.archived[channelID(e.Channel.Team, e.Channel.Name)] = true
		case e.Post != nil:
			p.add(channelID(e.Post.Team, e.Post.Channel), e.Post)
		case e.DirectPost != nil:
			p.add(directID(e.DirectPost.ChannelMembers), e.DirectPost)
		}
	}
}

// add adds a post and its replies. It skips system messages, such as "Ann joined", because
// Mattermost does not count them as unread.
func (p posts) add(id string, e *exportedPost) {
	if e.CreateAt > 0 && !e.is() && !strings.HasPrefix(e.Type, "system_") {
		p[id] = append(p[id], post{e.CreateAt, e.User})
	}
	for i := range e.Replies {
		p.add(id, &e.Replies[i])
	}
	if len(p[id]) > 2*MaxUnread {
		p.cut(id)
	}
}

// cut sorts the posts of a conversation and deletes all except the newest MaxUnread.
func (p posts) cut(id string) {
	all := p[id]
	slices.SortFunc(all, func(a, b post) int { return cmp.Compare(a.createdAt, b.createdAt) })
	if drop := len(all) - MaxUnread; drop > 0 {
		all = slices.Delete(all, 0, drop)
	}
	p[id] = all
}

func (r *Reader) parseMattermost(line []byte, channels *channels) error {
	var e exported
	if err := json.Unmarshal(line, &e); err != nil {
		return wrong("line", "is not a line of a bulk export of Mattermost: %v", err)
	}
	switch {
	case e.Type == "":
		return wrong("type", "is required")
	case e.User != nil:
		for _, team := range e.User.Teams {
			for _, channel := range team.Channels {
				if e.User.is() {
					r.skip(leftUser)
					continue
				}
				if err := r.addMember(e.User.Username, channelID(team.Name, channel.Name), &channel.membership, channels); err != nil {
					return err
				}
			}
		}
	case e.DirectChannel != nil:
		names := e.DirectChannel.Members
		if len(names) == 0 {
			for _, p := range e.DirectChannel.Participants {
				names = append(names, p.Username)
			}
		}
		for _, p := range e.DirectChannel.Participants {
			if e.DirectChannel.is() {
				r.skip(leftChannel)
				continue
			}
			if err := r.addMember(p.Username, directID(names), &p.membership, channels); err != nil {
				return err
			}
		}
	}
	return nil
}

// Reasons to skip the membership of a user in a channel.
const (
	leftUser    = "of deactivated users"
	leftChannel = "of archived channels"
	leftViewed  = "without last_viewed_at"
)

// addMember adds the row of a user in a conversation. It skips the row if the channel is archived
// or the membership has no last_viewed_at. If two posts have the same millisecond, they count as
// one post.
func (r *Reader) addMember(user, conversation string, m *membership, channels *channels) error {
	switch {
	case channels != nil && channels.archived[conversation]:
		r.skip(leftChannel)
		return nil
	case m.LastViewedAt == nil:
		r.skip(leftViewed)
		return nil
	}
	row := Row{UserID: user, ConversationID: conversation, ReadSeq: *m.LastViewedAt}
	if events.CheckCategory(conversation) == "" && strings.Contains(conversation, "/") { // the id of a team's channel is also its category; direct messages have the default category
		row.Category = conversation
	}
	var all []post
	if channels != nil {
		all = channels.posts[conversation]
	}
	for _, p := range all {
		row.LastSeq = p.createdAt
		if p.createdAt > *m.LastViewedAt && p.author != user {
			row.Unread = append(row.Unread, p.createdAt)
		}
	}
	row.Unread = slices.Compact(row.Unread)
	row.Mentions = newest(row.Unread, m.MentionCount)
	if m.NotifyProps.MarkUnread == "mention" { // a muted channel
		row.Level = events.LevelMentions
	}
	return r.add(row, stated{listed: true, empty: EmptyIsNone})
}
