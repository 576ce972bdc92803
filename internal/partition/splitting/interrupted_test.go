package splitting_test

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/log/eventlog"
	"github.com/badged/badged/internal/partition/splitting"
)

var kills = flag.Int("kills", 4, "how often to kill a split")

const splitEnv = "BADGED_TEST_SPLIT"

// splitProcess splits a partition of the database at a URL.
func splitProcess(arguments string) {
	var url string
	var partition int
	if _, err := fmt.Sscan(arguments, &url, &partition); err != nil {
		panic(err)
	}
	pool, err := pgxpool.New(context.Background(), url)
	if err != nil {
		panic(err)
	}
	r, err := splitting.Split(context.Background(), splitting.Config{Pool: pool, Log: events.Attach(pool, foldtest.Partitions), Partition: partition})
	fmt.Printf("%+v %v\n", r, err)
	if err != nil {
		os.Exit(1)
	}
}

// Killed at any moment of the split, the command completes it when it is run again.
func TestKilledSplits(t *testing.T) {
	t.Parallel()
	d := projectortest.New(t)
	var users []string
	for n := range 200 {
		users = append(users, foldtest.User(0, n))
	}
	for n := range 100 {
		d.Append(t, foldtest.Deliver("c", int64(n+1), users...))
	}
	d.Append(t, foldtest.Event("join", events.RoomJoined, "lobby", nil, users...))
	d.Append(t, foldtest.Event("post", events.RoomPosted, "lobby", foldtest.Seq(1)))
	d.InsertPayload(t, "no event")
	d.Fold(t)
	d.StopFolding()
	before := states(t, d)
	run := func(ctx context.Context, partition int) (string, error) {
		cmd := exec.CommandContext(ctx, os.Args[0], "-test.run=^$") // kills with SIGKILL
		cmd.Env = append(os.Environ(), splitEnv+"="+fmt.Sprint(d.URL, " ", partition))
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	began := time.Now()
	if out, err := run(t.Context(), 1); err != nil { // to know how long it takes
		t.Fatalf("%v\n%s", err, out)
	}
	took := time.Since(began)
	left := []int{0}
	for range *kills {
		partition := left[0]
		ctx, cancel := context.WithTimeout(t.Context(), took/10+time.Duration(rand.Int64N(int64(took))))
		_, killed := run(ctx, partition)
		cancel()
		projectortest.Until(t, "the killed session has ended", func() bool {
			return len(d.Lines(t, `SELECT pid::text FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'badged partition split'`)) == 0
		})
		a, b, _ := eventlog.Children(partition, foldtest.Partitions)
		held := d.Lines(t, `SELECT partition_id::text FROM badged.partitions WHERE partition_id = ANY ($1::integer[]) ORDER BY partition_id`, []int{partition, a, b})
		if got := strings.Join(held, " "); got != fmt.Sprint(partition) && got != fmt.Sprint(a, " ", b) {
			t.Fatalf("after a kill the database holds %s", got)
		}
		out, err := run(t.Context(), partition)
		if err != nil && !strings.Contains(out, splitting.ErrWasSplit.Error()) {
			t.Fatalf("%v\n%s", err, out)
		}
		t.Logf("partition %d, killed: %v; then %s", partition, killed, out)
		if rows := d.Lines(t, fmt.Sprintf(`SELECT user_id FROM badged.users_p%02d UNION ALL SELECT uuid::text FROM badged.events_p%02[1]d`, partition)); len(rows) > 0 {
			t.Errorf("partition %d still has %v", partition, rows)
		}
		left = append(left[1:], a, b)
	}
	if got := states(t, d); fmt.Sprint(got) != fmt.Sprint(before) {
		t.Errorf("users see\n%v\nwant\n%v", got, before)
	}
	verify(t, d)
}
