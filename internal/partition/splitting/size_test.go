package splitting_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/splitting"
)

var rooms = flag.Int("rooms", 500, "how many rooms, users, conversations, and memberships of one room the partition has")

// crowded gives partition 0 n users with one conversation each, and n rooms with one member each.
// All users are also in the room "hall".
func crowded(t testing.TB, d *projectortest.Database, n int) {
	t.Helper()
	for _, sql := range []string{
		fmt.Sprintf(`CREATE TABLE crowd AS SELECT row_number() OVER () AS n, id
FROM (SELECT 'u' || g AS id FROM generate_series(1, %d) AS g WHERE badged.partition_of('u' || g) = 0 LIMIT %d) AS u`, 10*n, n),
		`INSERT INTO badged.users (version, total, mentions, partition_id, user_id, categories) SELECT 1, 1, 0, 0, id, '{}' FROM crowd`,
		`INSERT INTO badged.conversations (version, read_seq, last_seq, unread, mentions, level, delivered_hour, partition_id, marked_unread, user_id, conversation_id, category)
SELECT 1, 0, 1, 1, 0, 'all', 1, 0, false, id, 'c', '' FROM crowd`,
		`INSERT INTO badged.conversations (version, read_seq, last_seq, joined, unread, mentions, level, delivered_hour, partition_id, marked_unread, user_id, conversation_id, category)
SELECT 1, 0, 0, 1, 0, 0, 'all', 1, 0, false, id, r, '' FROM crowd, LATERAL (VALUES ('hall'), ('r' || n)) AS r (r)`,
		`INSERT INTO badged.rooms (changes, last_seq, since, closed_live, closed_all, closed_changes, members, delivered_hour, partition_id, conversation_id, category)
SELECT 1, 1, 0, 0, 0, 0, count(*), 1, 0, conversation_id, '' FROM badged.conversations WHERE joined IS NOT NULL GROUP BY conversation_id`,
	} {
		d.Exec(t, sql)
	}
	for _, table := range []string{"users_p00", "conversations_p00", "rooms_p00"} {
		d.Exec(t, `ANALYZE badged.`+table)
	}
}

// The switch copies only the rows that changed since the last round, whatever the number of users
// and rooms of the partition. It does not count the members of large rooms.
func TestTheSwitchCopiesWhatHasChanged(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	crowded(t, d, *rooms)
	n := 0
	change := func() {
		n++
		d.Exec(t, `UPDATE badged.conversations SET read_seq = 1 WHERE partition_id = 0 AND conversation_id = 'hall' AND user_id IN (SELECT id FROM crowd WHERE n BETWEEN 10 * $1::integer AND 10 * $1 + 8)`, n)
		d.Exec(t, `INSERT INTO badged.conversations (version, read_seq, last_seq, joined, unread, mentions, level, delivered_hour, partition_id, marked_unread, user_id, conversation_id, category)
SELECT 1, 0, 0, 1, 0, 0, 'all', 1, 0, false, id, $1, '' FROM crowd WHERE n < 10`, fmt.Sprint("late", n))
		d.Exec(t, `INSERT INTO badged.rooms (changes, last_seq, since, closed_live, closed_all, closed_changes, members, delivered_hour, partition_id, conversation_id, category)
VALUES (1, 1, 0, 0, 0, 0, 9, 1, 0, $1, '')`, fmt.Sprint("late", n))
		d.Exec(t, `DELETE FROM badged.conversations WHERE partition_id = 0 AND conversation_id = 'hall' AND user_id = (SELECT id FROM crowd WHERE n = $1)`, 100+n)
		d.Exec(t, `UPDATE badged.rooms SET members = members - 1 WHERE partition_id = 0 AND conversation_id = 'hall'`)
	}
	const members = `SELECT conversation_id || ' ' || sum(members) FROM badged.rooms WHERE partition_id = ANY ($1) GROUP BY conversation_id ORDER BY 1`
	var want []string
	r, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: 0, Options: copier.Options{Progress: func(step copier.Step, rows int64) {
		t.Log(step, rows)
		switch step {
		case copier.CatchingUp, copier.Switching:
			if n < 4 {
				change()
			}
			want = d.Lines(t, members, []int{0})
		}
	}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", r)
	if got := d.Lines(t, members, []int{4, 8}); strings.Join(got, ",") != strings.Join(want, ",") {
		t.Errorf("rooms have members\n%.1000q\nwant\n%.1000q", got, want)
	}
	for _, p := range r.Into {
		for _, name := range append(partition.Watched(p), "badged."+events.Topic(p)) {
			got := d.Lines(t, fmt.Sprintf(`SELECT count(*)::text FROM %s WHERE xmin = (SELECT xmin FROM badged.partitions WHERE partition_id = %d) HAVING count(*) > 100`, name, p))
			if len(got) > 0 {
				t.Errorf("the switch has written %s rows of %s", got[0], name)
			}
		}
		wrong := d.Lines(t, fmt.Sprintf(`SELECT conversation_id || ' has ' || members || ', not ' || (SELECT count(*) FROM badged.conversations_p%02[1]d AS c WHERE c.conversation_id = r.conversation_id AND joined IS NOT NULL) FROM badged.rooms_p%02[1]d AS r WHERE members <> (SELECT count(*) FROM badged.conversations_p%02[1]d AS c WHERE c.conversation_id = r.conversation_id AND joined IS NOT NULL) LIMIT 9`, p))
		if len(wrong) > 0 {
			t.Errorf("in partition %d %v", p, wrong)
		}
	}
}
