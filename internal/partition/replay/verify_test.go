package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/fold/badge"
	"github.com/badged/badged/internal/fold/store"
	"github.com/badged/badged/internal/pg/pgsession"
)

// After any history in any batches, verifying finds no difference for all users, one share at a
// time, some users or many users. Explanations list the unread messages of the model, and name
// events that prove them.
func TestReplayAgreesWithWhatWasFolded(t *testing.T) {
	d := projectortest.New(t)
	n := 0
	rapid.Check(t, func(rt *rapid.T) {
		n++ // all histories are in one database, each with its own users
		users := []string{fmt.Sprint("ann-", n), fmt.Sprint("bob-", n), fmt.Sprint("cem-", n)}
		history := foldtest.DrawNamed(rt, n, users)
		start := make([]events.Position, foldtest.Partitions)
		for p := range start {
			start[p] = d.Position(t, p)
		}
		d.AppendAndFold(t, rt, history)
		for _, id := range users {
			p := events.PartitionOf(id, foldtest.Partitions)
			if differences, _ := verify(t, d, p, VerifyOptions{Users: []string{id}}); len(differences) > 0 {
				rt.Fatalf("after\n%s%s", foldtest.Story(history), strings.Join(differences, "\n"))
			}
			truth := foldtest.Model{Events: history, Generations: d.GenerationsOf(t, history, p, start[p])}
			e := explain(t, d, id, Question{})
			if diff := cmp.Diff(unreadSets(truth.Conversations(id)), explainedSets(e)); diff != "" {
				rt.Fatalf("after\n%sthe messages of %s are (-want +got):\n%s", foldtest.Story(history), id, diff)
			}
			if diff := cmp.Diff(d.Badge(t, id), *e.Table); diff != "" || !e.Agrees {
				rt.Fatalf("after\n%s%s does not agree (%v), the table (-want +got):\n%s", foldtest.Story(history), id, e.Agrees, diff)
			}
			for _, c := range e.Conversations {
				if fault := faultOf(c, truth.FoldedFor(id)); fault != "" {
					rt.Fatalf("after\n%sthe explanation of %s for %s is wrong: %s\n%+v", foldtest.Story(history), c.ConversationID, id, fault, c)
				}
			}
		}
	})
	var many []string
	for i := range foldtest.Partitions * (maxSought + 1) {
		many = append(many, foldtest.User(i%foldtest.Partitions, i/foldtest.Partitions))
	}
	d.Append(t, foldtest.Deliver("c", 1, many...))
	d.Fold(t)
	all := verifyAll(t, d, VerifyOptions{})
	if all.Users == 0 || all.Conversations < all.Users {
		t.Errorf("verified %+v", all)
	}
	if got := verifyAll(t, d, VerifyOptions{Memory: 20_000}); got != all {
		t.Errorf("with little memory %+v, with more %+v", got, all)
	}
	listed := int64(0)
	for p := range foldtest.Partitions {
		users := d.Lines(t, fmt.Sprintf(`SELECT user_id FROM badged.users_p%02d`, p))
		differences, v := verify(t, d, p, VerifyOptions{Users: users})
		if len(users) <= maxSought || len(differences) > 0 {
			t.Errorf("of %d listed users: %v", len(users), differences)
		}
		listed += v.Users
	}
	if listed != all.Users {
		t.Errorf("%d users as lists, %d together", listed, all.Users)
	}
}

// Every corruption is found for the user, for all users and one share at a time, and not for other
// users. Healing restores the rows with a version above every version that clients know, and
// clients get every conversation that changed.
func TestCorruptionsAreFoundAndHealed(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	verifyAll(t, d, VerifyOptions{})
	if _, healed := heal(t, d, ann); healed {
		t.Error("a user without differences was healed")
	}
	before := d.Dump(t)
	// rows are those of the user without versions and empty conversations.
	rows := func() []string {
		return d.Lines(t, `SELECT (to_jsonb(u) - 'version')::text FROM badged.users AS u WHERE user_id = $1
UNION ALL SELECT (to_jsonb(c) - 'version')::text FROM badged.conversations AS c WHERE user_id = $1 AND conversation_id NOT IN ('zombie', 'looked at') ORDER BY 1`, ann)
	}
	right := rows()
	for _, c := range projectortest.Corruptions() {
		t.Run(c.Name, func(t *testing.T) {
			restore := d.Keep(t)
			defer restore()
			d.Exec(t, c.SQL, ann)
			want := slices.Clone(c.Want)
			for i := range want {
				want[i] = strings.ReplaceAll(want[i], "USER", fmt.Sprintf("%q", ann))
			}
			for name, options := range map[string]VerifyOptions{
				"all users": {}, "a share at a time": {Memory: 1}, "the user": {Users: []string{ann}},
			} {
				if got, _ := verify(t, d, 0, options); !slices.Equal(got, want) {
					t.Errorf("%s (-want +got):\n%s", name, cmp.Diff(want, got))
				}
			}
			if others, _ := verify(t, d, 0, VerifyOptions{Users: []string{foldtest.User(0, 1), foldtest.User(0, 2), "unknown"}}); len(others) > 0 {
				t.Errorf("of others: %v", others)
			}

			var told int64
			if err := d.Pool.QueryRow(t.Context(), `SELECT coalesce(max(version), 0) FROM badged.users WHERE user_id = $1`, ann).Scan(&told); err != nil {
				t.Fatal(err)
			}
			told = max(told, 8)
			update, healed := heal(t, d, ann)
			defer d.Exec(t, `DELETE FROM badged.healed_users`)
			b := d.Badge(t, ann)
			if !healed || b.Version <= told || update.Version != b.Version || update.BaseVersion != b.Version || update.Epoch != b.Epoch || update.Partition != 0 {
				t.Errorf("healed %v: after version %d, the badge is %+v, the update %+v", healed, told, b, update)
			}
			if update.Total != 4 || update.Mentions != 1 || update.Categories["likes"].Total != 1 || update.Categories["chat"].Total != 3 {
				t.Errorf("the update is %+v", update)
			}
			changed := map[string]int64{}
			for _, c := range d.Changes(t, ann, told).Conversations {
				changed[c.ConversationID] = c.Unread
			}
			if n, ok := changed["c"]; !ok || n != 3 {
				t.Errorf("a client with version %d is told of %v", told, changed)
			}
			if n, ok := changed["zombie"]; n != 0 || ok != (c.Name == "conversation zombie") {
				t.Errorf("a client with version %d is told of %v", told, changed)
			}
			projectortest.Same(t, "healed rows", right, rows())
			if _, again := heal(t, d, ann); again {
				t.Error("the user was healed twice")
			}
			verifyAll(t, d, VerifyOptions{})
			if e := explain(t, d, ann, Question{}); !e.Agrees {
				t.Errorf("the explanation disagrees: %+v", e)
			}
		})
	}
	projectortest.Same(t, "the rows in the end", before, d.Dump(t))
	verifyAll(t, d, VerifyOptions{})
}

// A user that the log does not name differs. Healing empties the rows of the user and does not
// decrease the version.
func TestUserThatTheLogDoesNotName(t *testing.T) {
	d, ann := projectortest.NewForCorruptions(t)
	stranger := foldtest.User(0, 9)
	d.Exec(t, `INSERT INTO badged.users (version, total, mentions, partition_id, user_id, categories)
SELECT version, total, mentions, partition_id, $2, categories FROM badged.users WHERE user_id = $1`, ann, stranger)
	want := []string{fmt.Sprintf("user %q: the row is present in the table, absent by the log", stranger)}
	for name, options := range map[string]VerifyOptions{"all users": {}, "the user": {Users: []string{stranger}}} {
		if got, _ := verify(t, d, 0, options); !slices.Equal(got, want) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if _, healed := heal(t, d, stranger); !healed {
		t.Fatal("nothing was healed")
	}
	if b := d.Badge(t, stranger); b.Total != 0 || b.Mentions != 0 || len(b.Categories) != 0 || b.Version != 9 {
		t.Errorf("the badge is %+v", b)
	}
	verifyAll(t, d, VerifyOptions{})
	d.Append(t, foldtest.Deliver("c", 9, stranger))
	d.Fold(t)
	verifyAll(t, d, VerifyOptions{})
	if b := d.Badge(t, stranger); b.Total != 1 || b.Version != 10 {
		t.Errorf("the badge is %+v", b)
	}
}

// The hour of the last delivery is compared, and healed, like any other column.
func TestVerifyComparesTheHour(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.AppendAgo(t, 7*24*time.Hour, foldtest.Deliver("c", 1, ann), foldtest.Deliver("d", 1, ann))
	d.Fold(t)
	verifyAll(t, d, VerifyOptions{})
	hour := badge.HourOf(foldtest.Noon.Add(-7 * 24 * time.Hour))
	d.Exec(t, `UPDATE badged.conversations SET delivered_hour = delivered_hour + 1 WHERE conversation_id = 'c'`)
	want := []string{fmt.Sprintf(`user %q, conversation "c": delivered_hour is %d in the table, %d by the log`, ann, hour+1, hour)}
	got, _ := verify(t, d, 0, VerifyOptions{})
	projectortest.Same(t, "differences", want, got)
	heal(t, d, ann)
	projectortest.Same(t, "hours", []string{fmt.Sprint(hour)}, d.Lines(t, `SELECT DISTINCT delivered_hour::text FROM badged.conversations`))
}

// Every column is known, and so written, read and compared.
func TestRowsHaveEveryColumn(t *testing.T) {
	d := projectortest.New(t)
	for table, columns := range map[string][]store.Column{"users": new(store.UserRow).Columns(), "conversations": new(store.ConversationRow).Columns()} {
		got := []string{"partition_id"}
		for i := range columns {
			got = append(got, columns[i].Name)
		}
		slices.Sort(got)
		want := d.Lines(t, `SELECT column_name::text FROM information_schema.columns
WHERE table_schema = 'badged' AND table_name = $1 ORDER BY column_name COLLATE "C"`, table)
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("columns of %s (-table +row):\n%s", table, diff)
		}
	}
}

// Dead letters are not replayed, also if this release understands them.
func TestVerifyLeavesDeadLettersOut(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	for i, bad := range []string{``, `42`, `{}`, foldtest.InLog(`"type":"message.starred","data":{}`)} {
		d.Append(t, foldtest.Deliver("c", int64(i+1), ann))
		d.InsertPayload(t, bad)
	}
	d.Fold(t)
	d.StopFolding() // else its poll may fold the next event
	d.Append(t, foldtest.Deliver("c", 1000, ann))
	at := d.Lines(t, `SELECT transaction_id || '/' || "offset" FROM badged.events_p00 ORDER BY transaction_id DESC, "offset" DESC LIMIT 1`)[0]
	d.Exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, reason)
SELECT 0, transaction_id, "offset", uuid, 'was unknown' FROM badged.events_p00 WHERE transaction_id || '/' || "offset" = $1`, at)
	d.Exec(t, `UPDATE badged.events_p00_offsets SET last_processed_transaction_id = split_part($1, '/', 1)::xid8, offset_acked = split_part($1, '/', 2)::bigint`, at)
	verifyAll(t, d, VerifyOptions{})
	if differences, _ := verify(t, d, 0, VerifyOptions{Users: []string{ann}}); len(differences) > 0 {
		t.Error(differences)
	}
}

// A replay of one user reads only the dead letters of the rows that name the user.
func TestReplayOfAUserReadsFewLetters(t *testing.T) {
	d := projectortest.New(t)
	ann := foldtest.User(0, 0)
	d.Append(t, foldtest.Deliver("c", 1, ann))
	d.InsertPayload(t, fmt.Sprintf(`{"bad":%q}`, ann))
	d.Fold(t)
	d.Exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", index, uuid, reason)
SELECT partition_id, '5', n, index, uuid, reason FROM badged.dead_letters, generate_series(1, 2000) AS n`)
	d.Exec(t, `ANALYZE badged.dead_letters`)
	err := WithSnapshot(t.Context(), d.Pool, 0, foldtest.Partitions, func(snapshot *Snapshot) error {
		log, err := snapshot.replayOf(t.Context(), []string{ann})
		if err != nil {
			return err
		}
		if n := len(log.Users[ann].Conversations); n != 1 {
			t.Errorf("the user has %d conversations", n)
		}
		var read int
		err = snapshot.Tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE schemaname = 'badged' AND relname = 'dead_letters'`).Scan(&read)
		if read > 10 {
			t.Errorf("the replay has read %d dead letters", read)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// Of two events under one name for different users each counts for its users.
func TestVerifyWithKeysUsedTwice(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(0, 1)
	again := foldtest.Deliver("c", 1, bob)
	again.Data.ConversationID = "d"
	d.Append(t, foldtest.Deliver("c", 1, ann), again)
	d.InsertPayload(t, fmt.Sprintf(`{"specversion":"1.0","id":"1","source":"sql","type":"message.delivered","data":{"conversation_id":"e","user_ids":[%q],"seq":1}}`, ann))
	e := foldtest.Deliver("e", 1, bob)
	e.ID, e.Source = "1", "sql"
	d.Append(t, e)
	d.Fold(t)
	if a, b := d.Badge(t, ann), d.Badge(t, bob); a.Total != 2 || b.Total != 2 {
		t.Fatalf("totals are %d and %d", a.Total, b.Total)
	}
	for name, options := range map[string]VerifyOptions{"all users": {}, "a share at a time": {Memory: 1}, "ann": {Users: []string{ann}}, "bob": {Users: []string{bob}}} {
		if got, _ := verify(t, d, 0, options); len(got) > 0 {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// tally is a Progress that adds up.
type tally struct{ planned, done int64 }

func (s *tally) Planned(_ int, work int64)   { s.planned += work }
func (s *tally) Done(work, _ int)            { s.done += int64(work) }
func (*tally) Blocked(int, pgsession.Holder) {}

// Progress adds up: what is planned is what is done.
func TestVerifyTellsItsProgress(t *testing.T) {
	d, _ := projectortest.NewForCorruptions(t)
	length, err := strconv.ParseInt(d.Lines(t, `SELECT sum(events)::text FROM badged.events_p00`)[0], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	for _, memory := range []int64{0, 1, 2000} {
		var sum tally
		verify(t, d, 0, VerifyOptions{Memory: memory, Progress: &sum})
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
	d, ann := projectortest.NewForCorruptions(t)
	d.Exec(t, projectortest.Corruptions()[0].SQL, ann)
	for name, options := range map[string]VerifyOptions{"all users": {}, "a user": {Users: []string{ann}}} {
		ctx, cancel := context.WithCancel(t.Context())
		options.Found = func(Difference) { cancel() }
		_, err := NewVerifier(d.Pool, d.Log).Verify(ctx, 0, options)
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
		for s, more := AllUsers(), true; more; s, more = s.Next() {
			for range rapid.IntRange(0, 4).Draw(rt, "narrowed") {
				s.narrow()
			}
			if s.has(user) {
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
	s := AllUsers()
	for s.narrow() {
	}
	if s.lo != s.hi {
		t.Errorf("the narrowest share is from %d to %d", s.lo, s.hi)
	}
}

func TestDifferenceIsReadable(t *testing.T) {
	long := Difference{UserID: "ann", ConversationID: "c", Field: "unread_set", Table: "{" + strings.Repeat("é", 500) + "}", Log: ""}
	want := `user "ann", conversation "c": unread_set is {` + strings.Repeat("é", 59) + `… in the table, empty by the log`
	if got := long.String(); got != want {
		t.Errorf("it reads %s", got)
	}
}
