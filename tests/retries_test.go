package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// A retry with more users: an event names three users, then with the same id
// ten. It takes effect once for each of the ten, for every type, within one
// partition and across many, and a third repetition with other content changes
// nothing. The tables match the log.
func TestRetriesThatNameMoreUsers(t *testing.T) {
	const members = 10
	var ids []string
	for i := range members {
		ids = append(ids, fmt.Sprintf("member-%d", i))
	}
	list := func(users []string) string { return `"` + strings.Join(users, `","`) + `"` }
	for _, partitions := range []int{1, 16} {
		t.Run(fmt.Sprintf("%d partitions", partitions), func(t *testing.T) {
			database := pgtest.NewDB(t, pgtest.Template{})
			must(t, "migrate", "up", fmt.Sprintf("--partitions=%d", partitions), "--database-url="+database)
			p := serve(t, database)
			// Each conversation gets one type twice. In between the first
			// three users do something that a second effect would undo.
			twice := func(typ, conversation, more string) (first, again string) {
				data := `{"conversation_id":%q,"user_ids":[%s]` + more + `}`
				id := conversation + " twice"
				return event(id, typ, fmt.Sprintf(data, conversation, list(ids[:3]))), event(id, typ, fmt.Sprintf(data, conversation, list(ids)))
			}
			mark := func(id, conversation string, users []string) string {
				return event(id, "conversation.marked_unread", fmt.Sprintf(`{"conversation_id":%q,"user_ids":[%s]}`, conversation, list(users)))
			}

			delivery, deliveryAgain := twice("message.delivered", "delivered", `,"seq":1`)
			reading, readingAgain := twice("conversation.read", "read", `,"up_to_seq":1`)
			recall, recallAgain := twice("message.recalled", "recalled", `,"seq":1`)
			marking, markingAgain := twice("conversation.marked_unread", "marked", "")
			leaving, leavingAgain := twice("conversation.left", "left", "")
			level, levelAgain := twice("conversation.level_set", "level", `,"level":"none"`)
			louder, louderAgain := twice("conversation.level_set", "level", `,"level":"all"`)
			louder, louderAgain = strings.Replace(louder, "twice", "louder", 1), strings.Replace(louderAgain, "twice", "louder", 1)
			readAll := func(users []string) string {
				return event("read all", "user.read_all", fmt.Sprintf(`{"category":"feed","user_ids":[%s]}`, list(users)))
			}
			feed := func(seq int) string {
				return event(fmt.Sprint("feed/", seq), "message.delivered", fmt.Sprintf(`{"conversation_id":"feed","seq":%d,"category":"feed","user_ids":[%s]}`, seq, list(ids)))
			}
			p.mustPost(
				delivery,
				delivered("read", 1, list(ids)), reading, mark("mark read", "read", ids[:3]),
				delivered("recalled", 1, list(ids)), recall,
				marking, read("read marked", "marked", 1, list(ids[:3])),
				delivered("left", 1, list(ids)), leaving, delivered("left", 2, list(ids[:3])),
				delivered("level", 1, list(ids)), level, louder,
				feed(1), readAll(ids[:3]), feed(2),
			)
			again := []string{deliveryAgain, readingAgain, recallAgain, markingAgain, leavingAgain, levelAgain, readAll(ids)}
			p.mustPost(again...)
			position := p.mustPost(append(again,
				strings.Replace(deliveryAgain, `"seq":1`, `"seq":7`, 1),
				strings.Replace(delivery, `"seq":1`, `"seq":9`, 1),
				strings.Replace(delivery, list(ids[:3]), list(ids[1:2]), 1),
				louderAgain, levelAgain)...)

			for i, id := range ids {
				// For the users who were added, the conversations are marked,
				// left, of level none, and read.
				want := map[string]int64{"delivered": 1, "level": 1}
				if i < 3 {
					want = map[string]int64{"delivered": 1, "left": 1, "level": 1, "feed": 1}
				}
				total(t, p, id, position)
				got := withUnread(listed(t, p, id))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s has unread (-want +got):\n%s", id, diff)
				}
				marked := map[bool]string{true: "read", false: "marked"}[i < 3]
				if n, want := total(t, p, id, position), sum(want)+1; n != want {
					t.Errorf("the total of %s is %d, want %d with the mark of %s", id, n, want, marked)
				}
			}
			if out := must(t, "verify", "--database-url="+database); !strings.Contains(out, ": no difference") {
				t.Errorf("verify prints %s", out)
			}
			must(t, "user", "explain", ids[0], "--database-url="+database)
			must(t, "user", "explain", ids[9], "--database-url="+database)
		})
	}
}

func sum(unread map[string]int64) (n int64) {
	for _, u := range unread {
		n += u
	}
	return n
}
