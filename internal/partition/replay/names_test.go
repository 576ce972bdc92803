package replay

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
)

// The log is searched for a user by an index in complete ranges, and read in the last one: for
// events that name the user, for rooms, few or many, and for the keys of joins.
func TestSearchesUseTheIndex(t *testing.T) {
	d := projectortest.New(t)
	for range 2 {
		for i := range 300 {
			d.Append(t, foldtest.Event(uuid.NewString(), events.MessageDelivered, fmt.Sprint("chat ", i), foldtest.Seq(int64(i+1)), foldtest.User(0, i%20)))
		}
		d.EndRange(t, 0)
	}
	d.Append(t, foldtest.Event("last", events.MessageDelivered, "chat", foldtest.Seq(1), foldtest.User(0, 0)))
	d.Fold(t)
	d.IndexLog(t, 0)
	many := map[string]struct{}{}
	for i := range 2 * maxSoughtRooms {
		many[fmt.Sprint("room ", i)] = struct{}{}
	}
	member := seek([]string{foldtest.User(0, 3)}, map[string]struct{}{"lobby": {}})
	member.keys = map[uuid.UUID]string{{1}: "join"}
	for name, what := range map[string]*sought{
		"a user": seek([]string{foldtest.User(0, 3)}, nil), "a member": member, "a member of many rooms": seek([]string{foldtest.User(0, 3)}, many),
	} {
		err := WithSnapshot(t.Context(), d.Pool, 0, foldtest.Partitions, func(snapshot *Snapshot) error {
			sql, args := snapshot.searchSQL(events.Position{}, what)
			rows, _ := snapshot.Tx.Query(t.Context(), `EXPLAIN (COSTS OFF) `+sql, args...)
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plan := strings.Join(lines, "\n")
			for number := 1; number <= 2; number++ {
				if index := fmt.Sprintf("Bitmap Index Scan on events_p00_r%d_names", number); !strings.Contains(plan, index) {
					t.Errorf("%s: no %s in the plan\n%s", name, index, plan)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The index has the names of all texts in a payload that may be ids. If the texts cannot be read,
// the payload matches every name.
func TestNamesOfPayloads(t *testing.T) {
	d := projectortest.New(t)
	event := `{"specversion":"1.0","id":"e","source":"/chat","type":"room.joined","data":{"conversation_id":"lobby","user_ids":["ann","bö b","1"],"sender_id":"data"}}`
	has := func(payload []byte, text string) bool {
		return d.Lines(t, `SELECT (badged.log_names($1) && badged.log_names_of(ARRAY[$2]))::text`, payload, text)[0] == "true"
	}
	for _, payload := range []string{event, "[" + event + "," + event + "]", strings.ReplaceAll(event, ",", " ,\n"), `{"erased":[{"type":"room.left","conversation_id":"x","users":1}],"event":` + event + "}", `{"broken"` + event} {
		for _, text := range []string{"ann", "bö b", "1", "data", "lobby", "room.joined", "e", "/chat"} {
			if !has([]byte(payload), text) {
				t.Errorf("%s has no name %q", payload, text)
			}
		}
		if has([]byte(payload), "bob") {
			t.Errorf("%s has a name that is not in it", payload)
		}
	}
	packed := foldtest.Row(slices.Repeat([]string{event}, 100)...)
	for _, unreadable := range [][]byte{packed, []byte(`{"user_ids":["\u0061nn"]}`), []byte("ann"), []byte(`["` + strings.Repeat("x", 100_000) + `"]`)} {
		if !has(unreadable, "ann") {
			t.Errorf("%.40q tells that it does not have a name", unreadable)
		}
	}
	if has([]byte("null"), "ann") {
		t.Error("an erased event may have a name")
	}
}
