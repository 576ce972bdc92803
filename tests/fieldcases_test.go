package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
)

// fieldCase is an error of unread counts that another system had.
type fieldCase struct {
	name string
	// reports are links to bug reports.
	reports string
	story   string
	tell    func(*testing.T)
}

// fieldCases lists all cases. Each test uses badged as backends and apps do, and checks that the
// numbers are right in the end.
var fieldCases = []fieldCase{
	{
		"negative-badge", "openimsdk/open-im-server#3539",
		"reads and recalls race deliveries from several publishers: never below zero, never gone", negativeBadge,
	},
	{
		"phantom-after-cache-loss", "openimsdk/open-im-server#3436",
		"everything in Redis is wiped in the middle of traffic: no number changes", phantomAfterCacheLoss,
	},
	{
		"own-messages-counted", "openimsdk/open-im-server#2807, WuKongIM/WuKongIM#461",
		"the sender answers from a second device and reconnects: its own messages never count", ownMessagesCounted,
	},
	{
		"badge-only-grows", "element-hq/synapse#16904",
		"the user leaves a conversation with unread messages: it adds nothing, in every reader", badgeOnlyGrows,
	},
	{
		"hot-room", "matrix-org/synapse#11887",
		"a room of thousands is written while badges are read: reads wait for nothing", hotRoom,
	},
	{
		"migration-under-load", "matrix-org/synapse#15580",
		"the tables of the counts are migrated while events pour in: no deadlock, no loss", migrationUnderLoad,
	},
	{
		"phantom-thread", "mattermost/mattermost#22060",
		"a badge shows 1 and nothing unread is to be found: explain names the message, or verify the fault", phantomThread,
	},
	{
		"badge-jumps-back", "mattermost/mattermost-mobile#7680",
		"read on one device while the other sleeps: the next message makes it 1, not 5", badgeJumpsBack,
	},
	{
		"empty-room-unread", "RocketChat/Rocket.Chat#19121",
		"the only unread message of a room is recalled: zero, and there is nothing to explain", emptyRoomUnread,
	},
	{
		"lagging-reader", "RocketChat/Rocket.Chat#16921",
		"a state that was read long ago is never sent over a newer one", laggingReader,
	},
	{
		"mark-all-read-storm", "zulip/zulip#11956",
		"10,000 unread conversations are read at once while messages arrive: no session waits for a lock", markAllReadStorm,
	},
	{
		"reconnect-drift", "novuhq/novu#10817",
		"mark read, lose the connection before the answer, come back, retry: right, and once", reconnectDrift,
	},
	{
		"unreachable-contact", "web-push-libs/web-push#947",
		"the contact for VAPID is on localhost, which Apple refuses: so do config check and serve, and say why", unreachableContact,
	},
	{
		"slow-sum", "mattermost/mattermost-server#18788",
		"a user with 5,000 conversations: the total is one row", slowSum,
	},
	{
		"queue-overflow", "tinode/chat, its source",
		"a subscriber that cannot keep up gets the merged state: no update is dropped silently", queueOverflow,
	},
	{
		"late-old-message", "RocketChat/Rocket.Chat, its source",
		"a message that comes a day late counts if it is above the read position", lateOldMessage,
	},
	{
		"wrong-cluster", "ThreeDotsLabs/watermill#576",
		"dump and restore into a new cluster: detected, repaired, nothing lost", wrongCluster,
	},
	{
		"half-open-bus", "redis/go-redis, its source; PerpetualSoftware/pad#1195",
		"Redis stops answering but its sockets stay up: clients are right within the reconcile interval", halfOpenBus,
	},
	{
		"subscribe-race", "NodeBB/NodeBB#14355, kdlbs/kandev#2287",
		"messages commit between subscribe, snapshot and live: each is seen once, in order", subscribeRace,
	},
	{
		"restart-herd", "centrifugal/centrifugo#982",
		"all clients return at once after a deploy: each resumes and is right", restartHerd,
	},
	{
		"hybrid-origins", "ionic-team/ionic-docs#4546, phoenixframework/phoenix#1328",
		"a hybrid app connects from capacitor://localhost, file:// or null: allowed by name, and others are not", hybridOrigins,
	},
	{
		"long-tokens", "kubernetes-sigs/headlamp#1827, python-websockets/websockets#1239",
		"a login service issues tokens of 4 to 16 KiB: accepted at each door, and longer ones refused with the reason", longTokens,
	},
	{
		"empty-filter", "novuhq/novu#955",
		"everything of a category is read whose name is empty: refused at each door, and nothing is read", emptyFilter,
	},
	{
		"password-rotated", "hashicorp/boundary#1755",
		"the password of the database is changed: refused with the reason, and served again without a restart", passwordRotated,
	},
	{
		"settings-of-a-database", "ubicloud/ubicloud#5433, aquameta/aquameta#128",
		"a database has settings that change texts, times, isolation and plans: no number, verdict or text changes", settingsOfADatabase,
	},
	{
		"export-without-last-viewed", "mattermost/mattermost#22145, mattermost/mmetl#88",
		"an export does not say what its users have viewed: nothing is invented as unread, and what is left out is told", exportWithoutLastViewed,
	},
	{
		"archived-rooms", "RocketChat/Rocket.Chat#22515",
		"archived and hidden rooms are imported: they are in no total", archivedRooms,
	},
	{
		"slow-client-memory", "nats-io/nats-server#5553, lesismal/nbio#255",
		"clients that do not read while much is told to them: bounded memory", slowClientMemory,
	},
	{
		"silenced-by-a-seq", "block/buzz#6063",
		"a message with a position far ahead was read: a reset makes the conversation count again", silencedByASeq,
	},
	{
		"moved-message", "discourse/discourse#8056, zulip/zulip-flutter#901",
		"a message is moved to another conversation and back: it counts once, where it is now", movedMessage,
	},
	{
		"edited-mention", "zulip/zulip#14544",
		"edits add and remove a mention: mentions follow the last edit, in any order", editedMention,
	},
	{
		"restored-message", "NodeBB/NodeBB#1087, flarum/framework#5013",
		"a deleted message is restored: it counts again if it is above the read position", restoredMessage,
	},
	{
		"changed-in-a-room", "zulip/zulip#14544, NodeBB/NodeBB#1087, in a room",
		"edits, deletions and restorations of messages to a room, in any order: members count what the last one says", changedInARoom,
	},
	{
		"silenced-room", "block/buzz#6063, in a room",
		"the same for one member and for all members of a room", silencedRoom,
	},
	{
		"truncated-channel", "GetStream/stream-chat-js#521",
		"a channel is truncated for all: nothing of it is unread, and later messages count", truncatedChannel,
	},
	{
		"restored-backup", "mosamlife/wpmgr#528",
		"a publisher that was restored from a backup uses seqs again: they count", restoredBackup,
	},
	{
		"muted-in-the-number", "telegramdesktop/tdesktop#7634, status-im/status-app#11040",
		"a server is muted but for one channel: one number without what is muted, one with it", mutedInTheNumber,
	},
	{
		"threads-of-a-channel", "mattermost/mattermost-mobile#6926, discourse/discourse#25339",
		"a channel with threads is muted, a thread is unfollowed, the channel is left: threads go with it", threadsOfAChannel,
	},
	{
		"mention-where-muted", "status-im/status-app#8723, GetStream/stream-chat-swift#2340",
		"a user is mentioned in muted channels: it counts or not, as the level says", mentionWhereMuted,
	},
	{
		"reply-in-an-old-thread", "element-hq/element-web#25623",
		"a channel says 1 and nothing in it looks new: the number leads to the old thread", replyInAnOldThread,
	},
	{
		"bell-after-read-all", "steedos/steedos-platform#6888",
		"everything is read: the bell's number goes away on each device, without a reload", bellAfterReadAll,
	},
	{
		"read-all-of-thousands", "vstorm-co/agenticos#1761",
		"2,000 conversations are read at once: the number falls to what is left and does not come back", readAllOfThousands,
	},
	{
		"marks-are-no-messages", "element-hq/element-web#27216",
		"a conversation is marked unread: it adds one, and the badge says that the one is a mark", marksAreNoMessages,
	},
}

func TestFieldCase(t *testing.T) {
	told := map[string]bool{}
	for _, c := range fieldCases {
		t.Run(c.name, func(t *testing.T) {
			if c.tell == nil || c.reports == "" || c.story == "" || told[c.name] {
				t.Fatalf("there is no test of: %s (%s)", c.story, c.reports)
			}
			told[c.name] = true
			t.Parallel()
			c.tell(t)
		})
	}
}

// read, recalled and left return events of these types. users are JSON strings, separated by
// commas.
func read(id, conversation string, upTo int, users string) string {
	return event(id, "conversation.read", fmt.Sprintf(`{"conversation_id":%q,"up_to_seq":%d,"user_ids":[%s]}`, conversation, upTo, users))
}

func recalled(conversation string, seq int, users string) string {
	return event(fmt.Sprintf("recall %s/%d", conversation, seq), "message.recalled",
		fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":[%s]}`, conversation, seq, users))
}

func left(id, conversation, users string) string {
	return event(id, "conversation.left", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%s]}`, conversation, users))
}

// post publishes events in one request and returns their position. Any
// goroutine may call it.
func (p *process) post(events ...string) (position string, err error) {
	return p.postWithin(p.t.Context(), events...)
}

func (p *process) postWithin(ctx context.Context, events ...string) (position string, err error) {
	status, header, answer, err := exchange(ctx, publisherKey, http.MethodPost, p.url+"/v1/events", "application/x-ndjson", strings.Join(events, "\n"))
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("publish: %d %s", status, answer)
	}
	return header.Get("Badged-Position"), err
}

// mustPost is post, but fails the test on an error: only the test's goroutine may call it.
func (p *process) mustPost(events ...string) (position string) {
	p.t.Helper()
	position, err := p.post(events...)
	if err != nil {
		p.t.Fatal(err)
	}
	return position
}

// publishers publish concurrently; each publisher has its own list of requests.
type publishers struct {
	t    *testing.T
	wg   sync.WaitGroup
	mu   sync.Mutex
	last string
}

// publish starts a publisher. Call await afterwards.
func (ps *publishers) publish(p *process, requests iterRequests) {
	ps.wg.Go(func() {
		for events := range requests {
			position, err := p.post(events...)
			if err != nil {
				ps.t.Error(err)
				return
			}
			ps.mu.Lock()
			if len(position) > len(ps.last) || len(position) == len(ps.last) && position > ps.last {
				ps.last = position
			}
			ps.mu.Unlock()
		}
	})
}

// iterRequests yields the events of each request.
type iterRequests = func(yield func(events []string) bool)

// each yields requests of one event each.
func each(events []string) iterRequests {
	return func(yield func([]string) bool) {
		for i := range events {
			if !yield(events[i : i+1]) {
				return
			}
		}
	}
}

// await waits until all publishers have finished, and returns the position after all their events.
func (ps *publishers) await() (position string) {
	ps.t.Helper()
	ps.wg.Wait()
	if ps.t.Failed() {
		ps.t.FailNow()
	}
	return ps.last
}

// get sends a GET with the publisher's key, and decodes the answer.
func get(t *testing.T, url string, into any) {
	t.Helper()
	status, _, answer := request(t, http.MethodGet, url, "", "")
	if err := json.Unmarshal([]byte(answer), into); err != nil || status != http.StatusOK {
		t.Fatalf("%s: %d %s", url, status, answer)
	}
}

// listed returns a user's unread counts by conversation, as the API lists them.
func listed(t *testing.T, p *process, user string) map[string]int64 {
	t.Helper()
	unread := map[string]int64{}
	for cursor := ""; ; {
		var page struct {
			Conversations []struct {
				ConversationID string `json:"conversation_id"`
				Unread         int64
			}
			Cursor string
		}
		get(t, p.url+"/v1/users/"+user+"/conversations?unread=true&cursor="+cursor, &page)
		for _, c := range page.Conversations {
			unread[c.ConversationID] = c.Unread
		}
		if cursor = page.Cursor; cursor == "" {
			return unread
		}
	}
}

// everyReaderSays checks a user's unread counts, by conversation, in every place where they can be
// read, once they include a position.
func everyReaderSays(t *testing.T, database string, p *process, user, position string, want map[string]int64) {
	t.Helper()
	var sum int64
	for _, n := range want {
		sum += n
	}
	wantTotal(t, p, user, position, sum)

	if got := totals(t, p, []string{user}); !slices.Equal(got, []int64{sum}) {
		t.Errorf("the query of badges answers %v, want %d", got, sum)
	}

	if got := listed(t, p, user); !maps.Equal(got, want) {
		t.Errorf("the list of %s has %v, want %v", user, got, want)
	}

	fresh := connect(t, p.url, user)
	fresh.awaitTotal(sum)
	fresh.mu.Lock()
	if held := withUnread(fresh.unread); !maps.Equal(held, want) {
		t.Errorf("the snapshot of %s has %v, want %v", user, held, want)
	}
	fresh.mu.Unlock()

	shown := strings.Fields(must(t, "user", "show", user, "--database-url="+database))
	if i := slices.Index(shown, "total"); i < 0 || shown[i+1] != fmt.Sprint(sum) {
		t.Errorf("user show says of %s %q, want %d", user, shown, sum)
	}
	// The command fails if the tables differ from the log.
	explained := must(t, "user", "explain", user, "--database-url="+database)
	if nothing := strings.Contains(explained, "Nothing is unread."); nothing != (sum == 0) {
		t.Errorf("of %d unread is explained\n%s", sum, explained)
	}
}

func withUnread(unread map[string]int64) map[string]int64 {
	held := maps.Clone(unread)
	maps.DeleteFunc(held, func(_ string, n int64) bool { return n == 0 })
	return held
}
