package tests

import (
	"fmt"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// writeLog appends a payload to the log of a partition in plain SQL, bypassing
// badged.
func writeLog(t *testing.T, database string, partition int, payload string) {
	t.Helper()
	conn := pgtest.Connect(t, holderOf(t, database, partition))
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(
		`INSERT INTO badged.%s (uuid, payload, transaction_id) VALUES (gen_random_uuid(), convert_to($1, 'UTF8'), pg_current_xact_id())`,
		events.Topic(partition)), payload); err != nil {
		t.Fatal(err)
	}
}

// Rows of the log that cannot be decoded become dead letters with a reason. They can be listed,
// retried and discarded, and do not block later events.
func TestDeadLetters(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	home := events.PartitionOf("ann", partitions)
	writeLog(t, database, home, `{"specversion":"1.0","id":"1","source":"s","type":"message.teleported","data":{}}`)
	writeLog(t, database, home, `"not an event"`)
	writeLog(t, database, (home+1)%partitions, delivered("astray", 1, `"ann"`)) // not in ann's partition
	position := publish(t, p, delivered("c", 1, `"ann"`))
	wantTotal(t, p, "ann", position, 1)

	list := func() string { return must(t, "deadletters", "list", "--database-url="+database) }
	awaitMetric(t, p, "badged_projector_dead_letters_total", 3) // the other partition polls
	out := list()
	contains(t, out, `"message.teleported" is not a type of event`, "must be a JSON object", `user "ann" does not belong to partition`)

	stdout, stderr, code := command(t, "deadletters", "retry", "--all", "--database-url="+database)
	if code != 1 || strings.Count(stdout, "in the log again") != 1 || !strings.Contains(stderr, "message.teleported") {
		t.Errorf("retry: exit %d\n%s%s", code, stdout, stderr)
	}
	ann := connect(t, p.url, "ann")
	ann.awaitTotal(2)

	stdout = must(t, "deadletters", "discard", "--all", "--database-url="+database)
	if strings.Count(stdout, "\n") != 2 || !strings.Contains(stdout, `"not an event"`) {
		t.Errorf("discard printed\n%s", stdout)
	}
	if out := list(); out != "there are no dead letters\n" {
		t.Errorf("afterwards the list is\n%s", out)
	}
	fails(t, 1, "there is no such dead letter", "deadletters", "retry", "1", "--database-url="+database)
	fails(t, 2, "--all", "deadletters", "discard", "--database-url="+database)
}

// `badged log` prints the folded rows of the log, including rows that are no event or no JSON.
func TestLogCommand(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	home := events.PartitionOf("ann", partitions)
	writeLog(t, database, home, `"not an event"`)
	writeLog(t, database, home, "no JSON")
	total(t, p, "ann", p.mustPost(delivered("c", 1, `"ann"`), delivered("d", 1, `"ann"`)))
	log := func(flags ...string) string {
		return must(t, append([]string{"log", "--database-url=" + database}, flags...)...)
	}
	if out := log("--user=ann"); strings.Count(out, "\n") != 2 || strings.Count(out, `/1","appended_at":"`) != 1 || !strings.Contains(out, `"event":{"specversion":"1.0"`) {
		t.Errorf("events for ann:\n%s", out)
	}
	if out := log("--conversation=d", "--since=2026-01-01T00:00:00Z"); strings.Count(out, "\n") != 1 || !strings.Contains(out, `"conversation_id":"d"`) {
		t.Errorf("events in d:\n%s", out)
	}
	if out := log(fmt.Sprint("--partition=", home)); !strings.Contains(out, `"event":"not an event"`) || !strings.Contains(out, `"payload_base64":"`) {
		t.Errorf("the partition:\n%s", out)
	}
	for want, args := range map[string][]string{
		"--user must not be empty":         {"--user="},
		"--conversation must not be empty": {"--conversation", ""},
		"there is no partition 8: they":    {"--partition=8"},
		fmt.Sprintf(`the user "ann" is in partition %d, not %d`, home, (home+1)%partitions): {"--user=ann", fmt.Sprint("--partition=", (home+1)%partitions)},
		"--since 2026-01-02T00:00:00Z is after --until 2026-01-01T00:00:00Z":                {"--since=2026-01-02T00:00:00Z", "--until=2026-01-01T00:00:00Z"},
	} {
		if _, stderr, code := command(t, append([]string{"log", "--database-url=" + database}, args...)...); code == 0 || !strings.Contains(stderr, want) {
			t.Errorf("%v: exit %d %s", args, code, stderr)
		}
	}
}

// `badged log --follow` prints events as soon as they are folded, until it is interrupted.
func TestLogCommandFollows(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	p := serve(t, database)
	total(t, p, "ann", publish(t, p, delivered("before", 1, `"ann"`)))
	log := start(t, nil, "log", "--follow", "--user=ann", "--database-url="+database)
	log.awaitSays(`"conversation_id":"before"`)
	publish(t, p, delivered("others", 1, `"bob"`))
	publish(t, p, delivered("after", 1, `"ann"`))
	log.awaitSays(`"conversation_id":"after"`)
	if out := log.out.String(); strings.Count(out, "\n") != 2 || strings.Contains(out, "others") {
		t.Errorf("it prints\n%s", out)
	}
	log.mustStop()
}
