package tail

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/ThreeDotsLabs/watermill/message"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

// worker publishes one partition of the log to a target.
type worker struct {
	*Tail
	target    *Target
	writer    writer
	partition int
}

// handle publishes a page of events, and the badges that these events have changed. Then it
// publishes some of the badges that must be published again: see republish.
func (w *worker) handle(ctx context.Context, page []*message.Message) error {
	err := w.publishPage(ctx, page)
	if err == nil && w.target.Badges {
		err = w.republish(ctx)
	}
	w.report(ctx, w.target, w.partition, err)
	return err
}

func (w *worker) publishPage(ctx context.Context, page []*message.Message) error {
	var records []record
	skipped := 0
	changed := changes{map[string]bool{}, map[string]bool{}}
	for _, msg := range page {
		if msg.Metadata.Get(topics.MetadataDamage) != "" {
			skipped++
			continue
		}
		e, err := events.Decode(msg.Payload)
		if err != nil {
			return fmt.Errorf("decode the event at %s: %w", msg.Metadata.Get(topics.MetadataPlace), err) // unexpected, because the subscriber has already decoded the event
		}
		if w.target.Events {
			partition := strconv.Itoa(w.partition)
			records = append(records, record{
				key: partition, id: msg.UUID + "/" + partition, partition: partition,
				place: msg.Metadata.Get(topics.MetadataPlace), payload: msg.Payload, about: about(&e),
			})
		}
		if w.target.Badges {
			changed.add(&e)
		}
	}
	if err := w.write(ctx, records); err != nil {
		return err
	}
	w.cfg.Metrics.events.WithLabelValues(w.target.Name).Add(float64(len(records)))
	w.cfg.Metrics.skipped.WithLabelValues(w.target.Name).Add(float64(skipped))
	return w.publishChanges(ctx, changed)
}

// about returns names of the users and the conversation of an event, for the field `about` of a
// record.
func about(e *events.Event) []string {
	all := make([]string, 0, len(e.Data.UserIDs)+1)
	for _, user := range e.Data.UserIDs {
		all = append(all, "user "+user)
	}
	if e.Data.ConversationID != "" {
		all = append(all, "conversation "+e.Data.ConversationID)
	}
	return all
}

func (w *worker) write(ctx context.Context, records []record) error {
	if len(records) == 0 {
		return nil
	}
	return w.writer.write(ctx, records)
}

// changes has the users, and the rooms, whose badges may have changed.
type changes struct{ users, rooms map[string]bool }

// add adds the users whose badges an event may have changed. For an event to all members of a room,
// it adds the room and the mentioned users.
func (c *changes) add(e *events.Event) {
	users := e.Data.UserIDs
	if e.Type.ToRoom() {
		c.rooms[e.Data.ConversationID] = true
		users = e.Data.MentionedUserIDs
	}
	for _, user := range users {
		c.users[user] = true
	}
}

// maxMembers separates small rooms from large rooms, by the number of members in the partition.
// After a message to a small room, the badges of all members are published. After a message to a
// room with more members, the state of the room is published, and the badges of the mentioned users
// only.
const maxMembers = 1000

// room is the state of a room in a partition.
type room struct {
	ConversationID string `json:"conversation_id"`
	Category       string `json:"category"`
	Epoch          string `json:"epoch"`
	Version        int64  `json:"version"`
	LastSeq        int64  `json:"last_seq"`
	Members        int64  `json:"members"`
}

// publishChanges publishes the current badges of users, and the current states of large rooms. It
// publishes each badge and state only once, even if several events have changed it.
func (w *worker) publishChanges(ctx context.Context, c changes) error {
	if len(c.rooms) > 0 {
		rows, _ := w.cfg.Pool.Query(ctx, statements.Of(w.partition, "read rooms"), w.partition, slices.Collect(maps.Keys(c.rooms)))
		rooms, err := pgx.CollectRows(rows, pgx.RowToStructByPos[room])
		if err != nil {
			return fmt.Errorf("read %d rooms: %w", len(c.rooms), err)
		}
		var records []record
		var small []string
		for _, r := range rooms {
			if r.Members <= maxMembers {
				small = append(small, r.ConversationID)
				continue
			}
			id := fmt.Sprintf("%s/%d/%d/%s", r.Epoch, w.partition, r.Version, r.ConversationID)
			one, err := w.record("room.changed", r.ConversationID, id, r)
			if err != nil {
				return err
			}
			records = append(records, one)
		}
		if err := w.write(ctx, records); err != nil {
			return err
		}
		w.cfg.Metrics.badges.WithLabelValues(w.target.Name).Add(float64(len(records)))
		rows, _ = w.cfg.Pool.Query(ctx, statements.Of(w.partition, "read members"), small)
		members, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("read the members of %d rooms: %w", len(small), err)
		}
		for _, user := range members {
			c.users[user] = true
		}
	}
	here := make([]string, 0, len(c.users))
	for user := range c.users {
		if w.cfg.Log.PartitionOf(user) == w.partition { // the workers of other partitions publish the badges of their users
			here = append(here, user)
		}
	}
	slices.Sort(here)
	for users := range slices.Chunk(here, badges.MaxBadges) {
		if err := w.publishBadges(ctx, users); err != nil {
			return err
		}
	}
	return nil
}

// publishBadges publishes the badges of at most badges.MaxBadges users.
func (w *worker) publishBadges(ctx context.Context, users []string) error {
	all, err := w.reader.ShownBadges(ctx, users)
	if err != nil {
		return err
	}
	records := make([]record, 0, len(all))
	for i := range all {
		one, err := w.badge(&all[i])
		if err != nil {
			return err
		}
		records = append(records, one)
	}
	if err := w.write(ctx, records); err != nil {
		return err
	}
	w.cfg.Metrics.badges.WithLabelValues(w.target.Name).Add(float64(len(records)))
	return nil
}

func (w *worker) badge(b *pubsub.Badge) (record, error) {
	return w.record("badge.changed", b.UserID, fmt.Sprintf("%s/%d/%s", b.Epoch, b.Version, b.UserID), b.Shown())
}

// cloudEvent is a CloudEvent in structured mode; its data is the state of a badge or room.
type cloudEvent struct {
	SpecVersion     string    `json:"specversion"`
	ID              string    `json:"id"`
	Source          string    `json:"source"`
	Type            string    `json:"type"`
	Subject         string    `json:"subject"`
	Time            time.Time `json:"time"`
	DataContentType string    `json:"datacontenttype"`
	Data            any       `json:"data"`
}

// record returns a record that publishes the state of a badge or room. Callers must give different
// ids for different states.
func (w *worker) record(kind, subject, id string, data any) (record, error) {
	payload, err := json.Marshal(cloudEvent{
		SpecVersion: "1.0", ID: id, Source: "badged", Type: kind, Subject: subject, Time: time.Now().UTC(),
		DataContentType: "application/json", Data: data,
	})
	if err != nil {
		return record{}, fmt.Errorf("encode the %s of %q: %w", kind, subject, err)
	}
	return record{key: subject, id: id, partition: strconv.Itoa(w.partition), payload: payload}, nil
}

// republishFor limits the duration of one call of republish, during which new events wait.
const republishFor = 200 * time.Millisecond

// republish publishes the badges of all users of the partition, page by page. This is necessary for
// a new target, and after the tables have changed without an event, such as by a rebuild or a new
// epoch. A call ends after republishFor and stores the last user whose badge it has published. The
// next call continues after this user.
func (w *worker) republish(ctx context.Context) error {
	var revision, told int64
	var after *string
	err := w.cfg.Pool.QueryRow(ctx, statements.Of(w.partition, "read the state"), events.ProjectorGroup, w.target.group(), w.partition).Scan(&revision, &told, &after)
	if errors.Is(err, pgx.ErrNoRows) {
		err = errors.New("its row in badged.tail_partitions was deleted; start the process again")
	}
	if err != nil {
		return fmt.Errorf("read the state of the target: %w", err)
	}
	if after == nil {
		if revision == told {
			return nil
		}
		after = new(string)
	} else if told != revision { // the tables have changed meanwhile without an event: start again with the first user
		*after = ""
	}
	for began := time.Now(); after != nil && time.Since(began) < republishFor; {
		rows, _ := w.cfg.Pool.Query(ctx, statements.Of(w.partition, "page through users"), *after, badges.MaxBadges)
		users, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return fmt.Errorf("read the users: %w", err)
		}
		if len(users) > 0 {
			if err := w.publishBadges(ctx, users); err != nil {
				return err
			}
		}
		after = nil
		if n := len(users); n == badges.MaxBadges {
			after = &users[n-1]
		}
		if _, err := w.cfg.Pool.Exec(ctx, statements.Get("store the state"), w.target.group(), w.partition, revision, after); err != nil {
			return fmt.Errorf("store the state of the target: %w", err)
		}
	}
	return nil
}
