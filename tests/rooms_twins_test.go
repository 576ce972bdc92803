package tests

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// twinRounds is how many rounds of events the test of twins publishes.
var twinRounds = flag.Int("twin-rounds", 12, "how many rounds of events the test of users with the same events publishes")

// twins are users with the same events, one in each partition.
type twins struct {
	t    *testing.T
	p    *process
	ids  []string
	sql  *pgx.Conn // of a backend that publishes in its own transactions
	draw *rand.Rand
	// said are the events so far, for the message of a failure.
	said []string
	seq  map[string]int64
}

// all returns the ids of the twins as JSON.
func (w *twins) all() string { return `["` + strings.Join(w.ids, `","`) + `"]` }

// message draws an event about a message of a room. The order of such events makes no difference.
func (w *twins) message(room string) string {
	seq := w.seq[room] + w.draw.Int64N(3) - 1 // includes late and repeated messages
	seq = max(1, seq)
	w.seq[room] = max(w.seq[room], seq) + w.draw.Int64N(2)
	more := fmt.Sprintf(`"seq":%d`, seq)
	if w.draw.IntN(4) == 0 {
		return roomEvent("room.recalled", room, more)
	}
	more += `,"sender_id":"somebody"`
	switch w.draw.IntN(5) {
	case 0:
		more += `,"mentions_all":true`
	case 1:
		more += `,"mentioned_user_ids":` + w.all()
	}
	return roomEvent("room.posted", room, more)
}

// change draws an event whose order matters.
func (w *twins) change(room string) string {
	users := `"user_ids":` + w.all()
	upTo := fmt.Sprintf(`"up_to_seq":%d`, 1+w.draw.Int64N(max(1, w.seq[room])))
	switch w.draw.IntN(8) {
	case 0:
		return roomEvent("room.left", room, users)
	case 1:
		return roomEvent("room.joined", room, users)
	case 2, 3:
		return roomEvent("room.joined", room, users+`,`+upTo)
	case 4:
		return roomEvent("conversation.read", room, users+`,`+upTo)
	case 5:
		return roomEvent("conversation.reset", room, users+`,`+upTo)
	case 6:
		return roomEvent("conversation.marked_unread", room, users+fmt.Sprintf(`,"from_seq":%d`, 1+w.draw.Int64N(max(1, w.seq[room]))))
	}
	if w.draw.IntN(3) == 0 {
		return roomEvent("room.reset", room, fmt.Sprintf(`"seq":%d`, w.seq[room]))
	}
	return roomEvent("room.changed", room, fmt.Sprintf(`"seq":%d,"sender_id":"somebody","mentioned_user_ids":%s,"category":"news"`, max(1, w.seq[room]), w.all()))
}

// command sends the same command from the app of each twin.
func (w *twins) command(room string) {
	frame := fmt.Sprintf(`{"t":"read","id":1,"conversation_id":%q,"up_to_seq":%d}`, room, max(1, w.seq[room]-w.draw.Int64N(3)))
	w.said = append(w.said, frame)
	for _, id := range w.ids {
		if status, _, answer := requestAs(w.t, token(w.t, id), http.MethodPost, w.p.url+"/v1/commands", "", frame); status != http.StatusOK && !strings.Contains(answer, "not") {
			w.t.Fatalf("%s is answered %d %s", frame, status, answer)
		}
	}
}

// inSQL publishes events in a transaction that stays open while fn runs.
func (w *twins) inSQL(fn func(), events ...string) {
	w.t.Helper()
	tx, err := w.sql.Begin(w.t.Context())
	if err == nil {
		for _, e := range events {
			if _, err = tx.Exec(w.t.Context(), `SELECT badged.publish($1::jsonb)`, e); err != nil {
				break
			}
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	fn()
	if err := tx.Commit(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
}

// equal fails unless all twins have the same badge and conversations.
func (w *twins) equal(position string) {
	w.t.Helper()
	var first string
	for _, id := range w.ids {
		total(w.t, w.p, id, position)
		_, _, badge := request(w.t, http.MethodGet, w.p.url+"/v1/users/"+id+"/badge", "", "")
		_, _, list := request(w.t, http.MethodGet, w.p.url+"/v1/users/"+id+"/conversations", "", "")
		got := normal(strings.ReplaceAll(badge+list, id, "TWIN"))
		if first == "" {
			first = got
		}
		if got != first {
			w.t.Fatalf("%s has\n%s\nand %s has\n%s\nafter\n%s", w.ids[0], first, id, got, strings.ReplaceAll(strings.Join(w.said, "\n"), w.all(), "TWINS"))
		}
	}
}

// Users with the same events have the same numbers, whatever their ids are. The events come from
// concurrent requests, from transactions that stay open, and from apps.
func TestTwinsInAllPartitions(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	w := &twins{t: t, p: serve(t, database), sql: pgtest.Connect(t, database), draw: rand.New(rand.NewPCG(seed, 0)), seq: map[string]int64{}}
	for n := range partitions {
		w.ids = append(w.ids, userOf(n, "twin-"))
	}
	rooms := []string{"hall", "yard"}
	for range *twinRounds {
		room := rooms[w.draw.IntN(len(rooms))]
		var open, posts []string
		for range 1 + w.draw.IntN(3) {
			open = append(open, w.message(room))
		}
		for range 2 + w.draw.IntN(6) {
			posts = append(posts, w.message(room))
		}
		w.said = append(append(w.said, open...), posts...)
		w.inSQL(func() { // concurrent messages over HTTP, while others are not committed
			var all sync.WaitGroup
			for _, e := range posts {
				all.Go(func() {
					if _, err := w.p.post(e); err != nil {
						t.Error(err)
					}
				})
			}
			all.Wait()
		}, open...)
		changes := []string{w.change(room), w.message(room), w.change(room)}
		w.said = append(w.said, changes...)
		if w.draw.IntN(2) == 0 {
			w.p.mustPost(changes...)
		} else {
			w.inSQL(func() {}, changes...)
		}
		w.command(room)
		w.equal(w.p.mustPost(w.message(room)))
	}
	must(t, "verify", "--quiet", "--database-url="+database)
	must(t, "rebuild", "--quiet", "--database-url="+database)
	w.equal("0")
}
