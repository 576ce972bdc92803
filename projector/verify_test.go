package projector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/projector/internal/badge"
	"github.com/badged/badged/projector/replay"
)

// verify returns the differences in a partition, sorted.
func (d *database) verify(t testing.TB, partition int, options replay.VerifyOptions) ([]string, replay.Verified) {
	t.Helper()
	found := []string{}
	options.Found = func(d replay.Difference) {
		if d.Partition != partition {
			t.Errorf("%s is in partition %d, not %d", d, d.Partition, partition)
		}
		found = append(found, d.String())
	}
	v, err := replay.NewVerifier(d.pool, d.log).Verify(t.Context(), partition, options)
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(found)) != v.Differences {
		t.Errorf("told of %d differences, found %d", v.Differences, len(found))
	}
	slices.Sort(found)
	return found, v
}

// verifyAll fails the test where any partition differs.
func (d *database) verifyAll(t testing.TB, options replay.VerifyOptions) (sum replay.Verified) {
	t.Helper()
	for p := range foldtest.Partitions {
		differences, v := d.verify(t, p, options)
		for _, difference := range differences {
			t.Errorf("partition %d: %s", p, difference)
		}
		sum.Users += v.Users
		sum.Conversations += v.Conversations
	}
	return sum
}

// Whatever the history and however it was cut into batches, folding it again
// gives the same rows: for a few users, for many, and for everybody, also
// where their state does not fit into memory at once.
func TestVerifyFindsNothingWrongWithWhatWasFolded(t *testing.T) {
	d := newDatabase(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawHistory(rt, foldtest.EveryType(), users)
		for i := range history {
			history[i].Source = fmt.Sprint("history ", n)
		}
		d.appendAndFold(t, rt, history)
		for _, id := range users {
			if differences, _ := d.verify(t, events.PartitionOf(id, foldtest.Partitions), replay.VerifyOptions{Users: []string{id}}); len(differences) > 0 {
				rt.Fatalf("after\n%s%s", foldtest.Story(history), strings.Join(differences, "\n"))
			}
		}
	})
	everybody := d.verifyAll(t, replay.VerifyOptions{})
	if everybody.Users == 0 || everybody.Conversations < everybody.Users {
		t.Errorf("verified %+v", everybody)
	}
	if got := d.verifyAll(t, replay.VerifyOptions{Memory: 20_000}); got != everybody {
		t.Errorf("with little memory %+v, with more %+v", got, everybody)
	}
	var listed replay.Verified
	for p := range foldtest.Partitions {
		all := d.lines(t, fmt.Sprintf(`SELECT user_id FROM badged.users_p%02d`, p))
		differences, v := d.verify(t, p, replay.VerifyOptions{Users: all})
		if len(all) <= replay.MaxSought || len(differences) > 0 {
			t.Errorf("of %d listed users: %v", len(all), differences)
		}
		listed.Users += v.Users
	}
	if listed.Users != everybody.Users {
		t.Errorf("%d users one by one, %d together", listed.Users, everybody.Users)
	}
}

// While events pour in, a verification sees one instant: at several positions,
// whichever come up.
func TestVerifyWhileEventsPourIn(t *testing.T) {
	d := newDatabase(t)
	p, _, stop := d.startOwner(t, nil)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0), foldtest.User(1, 1)}
	var enough atomic.Bool
	var pouring sync.WaitGroup
	pouring.Go(func() {
		for seq := int64(1); !enough.Load(); seq++ {
			evs := []events.Event{foldtest.Deliver("c", seq, users...), foldtest.Deliver("d", seq, users[seq%4])}
			if seq%3 == 0 {
				evs = append(evs, foldtest.Event(fmt.Sprint("r", seq), events.ConversationRead, "c", foldtest.UpTo(seq-1), users[seq%4]))
			}
			r, err := d.log.Append(t.Context(), evs...)
			if err != nil {
				t.Error(err)
				return
			}
			for _, partition := range r.Partitions {
				p.Wake(partition)
			}
		}
	})
	moved := map[events.Position]struct{}{}
	for i := 0; i < 12 || len(moved) < 3; i++ {
		await(t, d.bus.published, "an update")
		differences, v := d.verify(t, 0, replay.VerifyOptions{Users: users[:2*(i%2)]})
		if len(differences) > 0 {
			t.Errorf("run %d: %v", i, differences)
		}
		moved[v.Position] = struct{}{}
	}
	enough.Store(true)
	pouring.Wait()
	stop()
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
}

// plant is a corruption and what verifying says of it; %[1]s is ann.
type plant struct {
	name, sql string
	want      []string
}

// plants are about startPlants.
var plants = []plant{
	{
		"the count of a conversation", `UPDATE badged.conversations SET unread = 7 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": unread is 7 in the table, 3 by the log`},
	},
	{
		"the mentions of a conversation", `UPDATE badged.conversations SET mentions = 2 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": mentions is 2 in the table, 1 by the log`},
	},
	{
		"a set", `UPDATE badged.conversations SET unread_set = '{[2,4),[5,6)}' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": unread_set is {[2,4),[5,6)} in the table, {[2,5)} by the log`},
	},
	{
		"a set of mentions", `UPDATE badged.conversations SET mention_set = '{[3,4)}' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": mention_set is {[3,4)} in the table, {[2,3)} by the log`},
	},
	{
		"a set of recalls", `UPDATE badged.conversations SET recalled_set = '{}' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": recalled_set is {} in the table, {[9,10)} by the log`},
	},
	{
		"a block", `UPDATE badged.conversations SET unread_block = '{2,3,1}', mention_block = '{2,2,1}' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{
			`user ANN, conversation "c": mention_block is {2,2,1} in the table, empty by the log`,
			`user ANN, conversation "c": unread_block is {2,3,1} in the table, empty by the log`,
		},
	},
	{
		"a read position", `UPDATE badged.conversations SET read_seq = 0 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": read_seq is 0 in the table, 1 by the log`},
	},
	{
		"a last message", `UPDATE badged.conversations SET last_seq = 5 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": last_seq is 5 in the table, 4 by the log`},
	},
	{
		"a leaving", `UPDATE badged.conversations SET left_seq = 4 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": left_seq is 4 in the table, empty by the log`},
	},
	{
		"a level", `UPDATE badged.conversations SET level = 'none' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": level is none in the table, all by the log`},
	},
	{
		"a mark", `UPDATE badged.conversations SET marked_unread = true WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": marked_unread is true in the table, false by the log`},
	},
	{
		"a category", `UPDATE badged.conversations SET category = 'likes' WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": category is likes in the table, chat by the log`},
	},
	{
		"the version of a conversation", `UPDATE badged.conversations SET version = 1 WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": version is 1 in the table, 5 by the log`},
	},
	{
		"a conversation that is missing", `DELETE FROM badged.conversations WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "c": the row is absent in the table, present by the log`},
	},
	{
		"a conversation too many", `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, '{"conversation_id": "zombie"}')).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "zombie": the row is present in the table, absent by the log`},
	},
	{
		"a conversation too many to which nothing happened", `INSERT INTO badged.conversations SELECT (jsonb_populate_record(c, '{"conversation_id": "looked at"}')).*
FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id = 'c'`,
		[]string{`user ANN, conversation "looked at": the row is present in the table, absent by the log`},
	},
	{"a total", `UPDATE badged.users SET total = 9 WHERE user_id = $1`, []string{`user ANN: total is 9 in the table, 4 by the log`}},
	{"mentions", `UPDATE badged.users SET mentions = 0 WHERE user_id = $1`, []string{`user ANN: mentions is 0 in the table, 1 by the log`}},
	{
		"a category's total", `UPDATE badged.users SET categories = '{"likes": 2, "chat": 3}' WHERE user_id = $1`,
		[]string{`user ANN: categories is {"chat":3,"likes":2} in the table, {"chat":3,"likes":1} by the log`},
	},
	{
		"categories that are none", `UPDATE badged.users SET categories = '[]' WHERE user_id = $1`,
		[]string{`user ANN: categories is [] in the table, {"chat":3,"likes":1} by the log`},
	},
	{"a version ahead", `UPDATE badged.users SET version = 9 WHERE user_id = $1`, []string{`user ANN: version is 9 in the table, 8 by the log`}},
	{"a version that went back", `UPDATE badged.users SET version = 5 WHERE user_id = $1`, []string{`user ANN: version is 5 in the table, 8 by the log`}},
	{"a user who is missing", `DELETE FROM badged.users WHERE user_id = $1`, []string{`user ANN: the row is absent in the table, present by the log`}},
}

// startPlants folds what plants are about: ann, and others who are not.
func startPlants(t *testing.T) (d *database, ann string) {
	t.Helper()
	d, ann = newDatabase(t), foldtest.User(0, 0)
	mention := foldtest.Deliver("c", 2, ann, foldtest.User(0, 1))
	mention.Data.MentionedUserIDs = []string{ann}
	like := foldtest.Deliver("likes", 1, ann)
	like.Data.Category = "likes"
	d.append(t, foldtest.Deliver("c", 1, ann, foldtest.User(0, 2)), mention, foldtest.Deliver("c", 3, ann), foldtest.Event("r", events.ConversationRead, "c", foldtest.UpTo(1), ann),
		foldtest.Deliver("c", 4, ann, foldtest.User(1, 0)), like, foldtest.Deliver("d", 1, foldtest.User(0, 1)),
		foldtest.Event("x", events.MessageRecalled, "c", func(d *events.Data) { d.Seq = 9 }, ann),
		foldtest.Event("x2", events.MessageRecalled, "invisible", func(d *events.Data) { d.Seq = 9 }, ann, foldtest.User(0, 3)),
		foldtest.Event("l", events.ConversationLevelSet, "looked at", foldtest.Level(events.LevelAll), ann),
		foldtest.Event("m", events.ConversationMarkedUnread, "c2", nil, ann), foldtest.Event("m2", events.ConversationRead, "c2", foldtest.UpTo(1), ann))
	return d, ann
}

func TestVerifyFindsWhatIsWrong(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	before := d.dump(t)
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			undo := d.keep(t)
			defer undo()
			d.exec(t, p.sql, ann)
			want := slices.Clone(p.want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "ANN", fmt.Sprintf("%q", ann))
			}
			for name, options := range map[string]replay.VerifyOptions{
				"everybody": {}, "a share at a time": {Memory: 1}, "the user": {Users: []string{ann}},
			} {
				if got, _ := d.verify(t, 0, options); !slices.Equal(got, want) {
					t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}
			if others, _ := d.verify(t, 0, replay.VerifyOptions{Users: []string{foldtest.User(0, 1), foldtest.User(0, 2), "nobody"}}); len(others) > 0 {
				t.Errorf("of others: %v", others)
			}
		})
	}
	if after := d.dump(t); after != before {
		t.Errorf("a row was not put back (-before +after):\n%s", cmp.Diff(before, after))
	}
	d.verifyAll(t, replay.VerifyOptions{})
}

// keep returns a function that puts the rows back as they are now.
func (d *database) keep(t *testing.T) (undo func()) {
	t.Helper()
	d.exec(t, `CREATE TABLE kept_users AS TABLE badged.users`)
	d.exec(t, `CREATE TABLE kept_conversations AS TABLE badged.conversations`)
	return func() {
		d.exec(t, `TRUNCATE badged.users, badged.conversations`)
		d.exec(t, `INSERT INTO badged.users TABLE kept_users`)
		d.exec(t, `INSERT INTO badged.conversations TABLE kept_conversations`)
		d.exec(t, `DROP TABLE kept_users, kept_conversations`)
	}
}

// A user whom the log does not name at all.
func TestVerifyFindsAUserTooMany(t *testing.T) {
	d, _ := startPlants(t)
	d.fold(t)
	stranger := foldtest.User(0, 9)
	d.exec(t, `INSERT INTO badged.users SELECT version, total, mentions, partition_id, $2, categories FROM badged.users WHERE user_id = $1`, foldtest.User(0, 0), stranger)
	want := []string{fmt.Sprintf("user %q: the row is present in the table, absent by the log", stranger)}
	for name, options := range map[string]replay.VerifyOptions{"everybody": {}, "the user": {Users: []string{stranger}}} {
		if got, _ := d.verify(t, 0, options); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// The hour of the last delivery is compared, and healed, like any other column.
func TestVerifyComparesTheHour(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	d.appendAgo(t, week, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, ann))
	d.fold(t)
	d.verifyAll(t, replay.VerifyOptions{})
	hour := badge.HourOf(foldtest.Noon.Add(-week))
	d.exec(t, `UPDATE badged.conversations SET delivered_hour = delivered_hour + 1 WHERE conversation_id = 'c'`)
	want := []string{fmt.Sprintf(`user %q, conversation "c": delivered_hour is %d in the table, %d by the log`, ann, hour+1, hour)}
	if got, _ := d.verify(t, 0, replay.VerifyOptions{}); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, healed := d.heal(t, ann); !healed {
		t.Error("the user was not healed")
	}
	same(t, "hours", []string{fmt.Sprint(hour)}, d.lines(t, `SELECT DISTINCT delivered_hour::text FROM badged.conversations`))
}

// Every column is compared, but those that say whose row it is.
func TestVerifyComparesEveryColumn(t *testing.T) {
	compared := map[string][]string{"users": {"partition_id", "user_id", "version"}, "conversations": {"partition_id", "user_id", "conversation_id", "version"}}
	for _, f := range replay.UserFields() {
		compared["users"] = append(compared["users"], f.Name)
	}
	for _, f := range replay.ConversationFields() {
		compared["conversations"] = append(compared["conversations"], f.Name)
	}
	d := newDatabase(t)
	for table, got := range compared {
		slices.Sort(got)
		want := d.lines(t, `SELECT column_name::text FROM information_schema.columns
WHERE table_schema = 'badged' AND table_name = $1 ORDER BY column_name COLLATE "C"`, table)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("columns of %s (-there are +compared):\n%s", table, diff)
		}
	}
}

// What a batch puts aside is not folded again, nor is what waits as a dead
// letter and has been understood since.
func TestVerifyLeavesDeadLettersOut(t *testing.T) {
	d := newDatabase(t)
	ann := foldtest.User(0, 0)
	for i, bad := range badPayloads {
		d.append(t, foldtest.Deliver("c", int64(i+1), ann))
		d.insertPayload(t, bad.payload)
	}
	d.fold(t)
	d.append(t, foldtest.Deliver("c", 1000, ann))
	at := d.lines(t, `SELECT transaction_id || '/' || "offset" FROM badged.events_p00 ORDER BY transaction_id DESC, "offset" DESC LIMIT 1`)[0]
	d.exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, reason)
SELECT 0, transaction_id, "offset", uuid, 'was unknown' FROM badged.events_p00 WHERE transaction_id || '/' || "offset" = $1`, at)
	d.exec(t, `UPDATE badged.events_p00_offsets SET last_processed_transaction_id = split_part($1, '/', 1)::xid8, offset_acked = split_part($1, '/', 2)::bigint`, at)
	d.verifyAll(t, replay.VerifyOptions{})
	if differences, _ := d.verify(t, 0, replay.VerifyOptions{Users: []string{ann}}); len(differences) > 0 {
		t.Error(differences)
	}
}

// Events under one name that name different users: each counts for those whom
// it names first.
func TestVerifyWithKeysUsedTwice(t *testing.T) {
	d := newDatabase(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	again := foldtest.Deliver("c", 1, bob)
	again.Data.ConversationID = "d"
	d.append(t, foldtest.Deliver("c", 1, ann), again)
	d.insertPayload(t, fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"sql","type":"message.delivered","data":{"conversation_id":"e","user_ids":[%q],"seq":1}}`, ann))
	e := foldtest.Deliver("e", 1, bob)
	e.ID, e.Source = "1", "sql"
	d.append(t, e)
	d.fold(t)
	if a, b := d.badge(t, ann), d.badge(t, bob); a.Total != 2 || b.Total != 2 {
		t.Fatalf("totals are %d and %d", a.Total, b.Total)
	}
	for name, options := range map[string]replay.VerifyOptions{"everybody": {}, "a share at a time": {Memory: 1}, "ann": {Users: []string{ann}}, "bob": {Users: []string{bob}}} {
		if got, _ := d.verify(t, 0, options); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// tally is a Progress that adds up.
type tally struct{ planned, done int64 }

func (s *tally) Planned(_ int, work int64) { s.planned += work }
func (s *tally) Done(work, _ int)          { s.done += int64(work) }
func (*tally) Blocked(int, int, string)    {}

// Progress adds up: what is planned is what is done.
func TestVerifyTellsItsProgress(t *testing.T) {
	d, _ := startPlants(t)
	d.fold(t)
	length, err := strconv.ParseInt(d.lines(t, `SELECT count(*)::text FROM badged.events_p00`)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, memory := range []int64{0, 1, 2000} {
		var sum tally
		d.verify(t, 0, replay.VerifyOptions{Memory: memory, Progress: &sum})
		planned, done := sum.planned, sum.done
		if planned != done {
			t.Errorf("with %d bytes of memory, %d of %d planned were done", memory, done, planned)
		}
		if again := done/length - 1; done%length != 0 || memory == 0 && again > 0 || memory == 1 && again < 5 {
			t.Errorf("with %d bytes of memory %d events were gone through, of %d", memory, done, length)
		}
	}
}

func TestVerifyIsCancelled(t *testing.T) {
	d, ann := startPlants(t)
	d.fold(t)
	d.exec(t, plants[0].sql, ann)
	for name, options := range map[string]replay.VerifyOptions{"everybody": {}, "a user": {Users: []string{ann}}} {
		ctx, cancel := context.WithCancel(t.Context())
		options.Found = func(replay.Difference) { cancel() }
		_, err := replay.NewVerifier(d.pool, d.log).Verify(ctx, 0, options)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}

func TestShares(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		user := rapid.String().Draw(rt, "user")
		holders, shares := 0, 0
		for s, more := replay.AllUsers(), true; more; s, more = s.Next() {
			for range rapid.IntRange(0, 4).Draw(rt, "narrowed") {
				s.Narrow()
			}
			if s.Has(user) {
				holders++
			}
			if shares++; shares > 1<<10 {
				rt.Skip("very many shares")
			}
		}
		if holders != 1 {
			rt.Fatalf("%d shares have the user", holders)
		}
	})
	s := replay.AllUsers()
	for s.Narrow() {
	}
	if s.Lo != s.Hi {
		t.Errorf("the narrowest share is from %d to %d", s.Lo, s.Hi)
	}
}

func TestDifferenceIsReadable(t *testing.T) {
	long := replay.Difference{UserID: "ann", ConversationID: "c", Field: "unread_set", Table: "{" + strings.Repeat("é", 500) + "}", Log: ""}
	want := `user "ann", conversation "c": unread_set is {` + strings.Repeat("é", 59) + `… in the table, empty by the log`
	if got := long.String(); got != want {
		t.Errorf("it reads %s", got)
	}
}
