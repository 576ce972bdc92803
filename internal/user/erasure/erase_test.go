package erasure_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/partition/archive"
	"github.com/badged/badged/internal/partition/rebuild"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/partition/splitting"
	"github.com/badged/badged/internal/pg/pgsession"
	"github.com/badged/badged/internal/server/revocation"
	"github.com/badged/badged/internal/user/erasure"
	"github.com/badged/badged/projector"
)

// folding starts a projector that folds what is appended, as a server does.
func folding(t testing.TB, d *projectortest.Database) *projectortest.Running {
	t.Helper()
	d.StopFolding()
	return d.Start(t, func(cfg *projector.Config) { cfg.PollInterval = 5 * time.Millisecond })
}

// erase erases a user.
func erase(t testing.TB, d *projectortest.Database, user string) erasure.Erased {
	t.Helper()
	r, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: user})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// awaitLock waits until a session waits for a lock.
func awaitLock(t testing.TB, d *projectortest.Database) {
	t.Helper()
	projectortest.Until(t, "a session that waits for a lock", func() bool {
		return len(d.Lines(t, `SELECT 'waits' FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`)) > 0
	})
}

// holds returns the tables that contain the bytes of a text, as a dump shows them.
func holds(t testing.TB, d *projectortest.Database, text string) (tables []string) {
	t.Helper()
	for _, table := range d.Lines(t, `SELECT format('badged.%I', relname) FROM pg_class WHERE relnamespace = 'badged'::regnamespace AND relkind = 'r' ORDER BY 1`) {
		if found := d.Lines(t, `SELECT left(r::text, 200) FROM `+table+` AS r WHERE position($1 IN r::text) > 0 OR position($2 IN r::text) > 0 LIMIT 1`, text, fmt.Sprintf("%x", text)); len(found) > 0 {
			tables = append(tables, table+": "+found[0])
		}
	}
	return tables
}

// ofOthers returns the rows of all users except one, and of rooms without the number of members.
func ofOthers(t testing.TB, d *projectortest.Database, user string) string {
	t.Helper()
	return strings.Join(slices.Concat(
		d.Lines(t, `SELECT to_jsonb(u)::text FROM badged.users AS u WHERE user_id <> $1 ORDER BY user_id`, user),
		d.Lines(t, `SELECT to_jsonb(c)::text FROM badged.conversations AS c WHERE user_id <> $1 ORDER BY user_id, conversation_id`, user),
		d.Lines(t, `SELECT (to_jsonb(r) - 'members')::text FROM badged.rooms AS r ORDER BY partition_id, conversation_id`),
		d.Lines(t, `SELECT to_jsonb(m)::text FROM badged.room_marks AS m WHERE user_id <> $1 ORDER BY conversation_id, seq, user_id`, user),
	), "\n")
}

// rebuilt rebuilds all partitions, and fails the test if a user differed.
func rebuilt(t testing.TB, d *projectortest.Database) {
	t.Helper()
	if err := rebuild.Run(t.Context(), rebuild.Config{Pool: d.Pool, Log: d.Log, Rebuilt: func(r rebuild.Result) {
		if r.DifferentUsers > 0 || len(r.First) > 0 {
			t.Errorf("the rebuild of partition %d finds %d different users: %v", r.Partition, r.DifferentUsers, r.First)
		}
	}}); err != nil {
		t.Fatal(err)
	}
}

// An erasure leaves no data of the user, changes nothing of others, and the tables agree with the
// log.
func TestErase(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	d.Exec(t, `DELETE FROM badged.audit`)
	before := ofOthers(t, d, id)
	replaytest.Verify(t, d.Pool, d.Log, near, far)
	folding(t, d)
	got := erase(t, d, id)
	want := erasure.Erased{Partition: partition, Counts: erasure.Counts{Erased: 3, Changed: 10}, Conversations: 3, Devices: 1, DeadLetters: 2}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the result (-want +got):\n%s", diff)
	}
	dump := string(pgtest.Borrow(t).Run(t, nil, "pg_dump", d.URL))
	for _, part := range []string{"the ghost", fmt.Sprintf("%x", "the ghost")} {
		if strings.Contains(dump, part) {
			t.Errorf("a dump has %q", part)
		}
	}
	for _, part := range []string{id, "the ghost", "4711>"} {
		for _, table := range holds(t, d, part) {
			t.Errorf("%q is still in %s", part, table)
		}
	}
	if diff := cmp.Diff(before, ofOthers(t, d, id)); diff != "" {
		t.Errorf("rows of others (-before +after):\n%s", diff)
	}
	replaytest.Verify(t, d.Pool, d.Log, near, far)
	rebuilt(t, d)
	if all := exported(t, d, id, nil); len(all) > 0 {
		t.Errorf("an export still has %v", all)
	}
	if diff := cmp.Diff(erasure.Erased{Partition: partition}, erase(t, d, id)); diff != "" {
		t.Errorf("erased again (-want +got):\n%s", diff)
	}
}

// The erasure drops the user from the owner's caches: a repeated event is folded again.
func TestEraseMakesTheOwnerForget(t *testing.T) {
	d := projectortest.New(t)
	folding(t, d)
	again, other := foldtest.Named("again", foldtest.Deliver("lunch", 1, id, near)), foldtest.Deliver("lunch", 2, id, near)
	d.Append(t, again, other)
	d.AwaitFolded(t)
	erase(t, d, id)
	d.Append(t, again)
	d.AwaitFolded(t)
	if got := d.Badge(t, id); got.Total != 1 || got.Version != 1 {
		t.Errorf("the event that came again counts %d, version %d", got.Total, got.Version)
	}
	if got := d.Badge(t, near); got.Total != 2 || got.Version != 2 {
		t.Errorf("it counts %d for the other user, version %d", got.Total, got.Version)
	}
	replaytest.Verify(t, d.Pool, d.Log, near, id)
}

// An event folded between reading the log and writing the tables is erased too.
func TestEraseWhatIsFoldedMeanwhile(t *testing.T) {
	d := projectortest.New(t)
	d.Append(t, foldtest.Named("early", foldtest.Deliver("lunch", 1, id, near)))
	d.Fold(t)
	d.StopFolding()
	d.Append(t, foldtest.Named("late", foldtest.Deliver("lunch", 2, id, near)))
	holder := d.Begin(t)
	if _, err := holder.Exec(t.Context(), fmt.Sprintf(`SELECT FROM badged.events_p%02d_offsets FOR UPDATE`, partition)); err != nil {
		t.Fatal(err)
	}
	erased := make(chan erasure.Erased, 1)
	go func() {
		r, err := erasure.Erase(context.WithoutCancel(t.Context()), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: id})
		if err != nil {
			t.Error(err)
		}
		erased <- r
	}()
	// The erasure has read the log, and is blocked by the fence.
	awaitLock(t, d)
	if err := holder.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	folding(t, d)
	if got := projectortest.Await(t, erased, "the erasure"); got.Changed != 2 || got.Conversations != 1 {
		t.Errorf("the result is %+v", got)
	}
	for _, table := range holds(t, d, "the ghost") {
		t.Errorf("the id is still in %s", table)
	}
	replaytest.Verify(t, d.Pool, d.Log, near, id)
}

// An erasure revokes the user's tokens and ends the connections, although the tables do not name
// the user: apps and a backend may use the tokens afterwards. Earlier revocations stay, also
// those with a later time.
func TestErasedUsersStayRevoked(t *testing.T) {
	d := projectortest.New(t)
	var ended []string
	load := func(l *revocation.List) *revocation.List {
		t.Helper()
		if err := l.Load(t.Context()); err != nil {
			t.Fatal(err)
		}
		return l
	}
	following := load(revocation.New(d.Pool, revocation.Config{ // a process that runs meanwhile
		Connected: func() []string { return []string{"ann", id, "bob"} },
		Ended:     func(userIDs []string) { ended = append(ended, userIDs...) },
	}))
	later := time.Now().Add(time.Hour).Truncate(time.Microsecond)
	for i, step := range []struct{ before, holds time.Time }{
		{}, // nothing was revoked
		{before: time.Now().Add(-time.Hour)},
		{later, later},
		{later.Add(-time.Minute), later}, // not taken back by an earlier one
		{holds: later},
	} {
		if !step.before.IsZero() {
			if _, err := load(revocation.New(d.Pool, revocation.Config{})).End(t.Context(), id, step.before); err != nil {
				t.Fatal(err)
			}
		}
		load(following)
		ended = nil
		// The clock of the issuer may be 5 seconds ahead.
		began := time.Now().Add(5 * time.Second)
		erase(t, d, id)
		valid := time.Now().Add(5 * time.Second)
		if step.holds.After(valid) {
			began, valid = step.holds.Add(-time.Microsecond), step.holds
		}
		for name, l := range map[string]*revocation.List{"a new process": revocation.New(d.Pool, revocation.Config{}), "one that runs": following} {
			load(l)
			if !l.Revoked(id, began) || l.Revoked(id, valid) {
				t.Errorf("after step %d, to %s a token issued at %s is revoked: %t, and at %s: %t", i, name, began, l.Revoked(id, began), valid, l.Revoked(id, valid))
			}
			if l.Revoked("ann", time.Time{}) {
				t.Errorf("after step %d %s has revoked tokens of others", i, name)
			}
		}
		if !slices.Equal(slices.Compact(ended), []string{id}) {
			t.Errorf("after step %d the connections of %q are ended", i, ended)
		}
		for _, table := range holds(t, d, "the ghost") {
			t.Errorf("the id is still in %s", table)
		}
	}
}

// While the projector folds events, the erasure has one place among them: later events count for
// the user as for a new one.
func TestEraseWhileEventsCome(t *testing.T) {
	d := projectortest.New(t)
	running := folding(t, d)
	user, other := foldtest.User(0, 0), foldtest.User(0, 1)
	d.Append(t, foldtest.Event("join", events.RoomJoined, "hall", nil, user, other))
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	published := make(chan int64, 1)
	go func() {
		var seq int64
		for seq = 1; ctx.Err() == nil; seq++ {
			if _, err := d.Log.Append(context.WithoutCancel(ctx), foldtest.Deliver("lunch", seq, user, other), foldtest.Event(fmt.Sprint("post ", seq), events.RoomPosted, "hall", foldtest.Seq(seq))); err != nil {
				t.Error(err)
				break
			}
		}
		published <- seq - 1
	}()
	for range 3 {
		more := d.Badge(t, other).Total + 20
		projectortest.Until(t, "more messages", func() bool { return d.Badge(t, other).Total >= more })
		erase(t, d, user)
	}
	stop()
	last := projectortest.Await(t, published, "the publisher")
	d.AwaitFolded(t)
	running.Stop()
	replaytest.Verify(t, d.Pool, d.Log, user, other)
	if got := d.Badge(t, other).Total; got != 2*last {
		t.Errorf("%d messages in two conversations count %d for the other user", last, got)
	}
	if got := d.Badge(t, user); got.Total >= last || got.Total != got.Version {
		t.Errorf("of %d messages %d count for the erased user, version %d", last, got.Total, got.Version)
	}
}

// A killed erasure has erased all of the partition or nothing, the tables agree with the
// log, and the next erasure completes it.
func TestKilledErasure(t *testing.T) {
	for name, trigger := range map[string]string{
		"in the log":        "AFTER UPDATE ON badged.events_p02",
		"in the tables":     "AFTER DELETE ON badged.users_p02",
		"of dead letters":   "AFTER DELETE ON badged.dead_letters",
		"at the commit":     "AFTER UPDATE ON badged.partitions DEFERRABLE",
		"in another one":    "AFTER UPDATE ON badged.events_p03",
		"of the targets":    "AFTER DELETE ON badged.devices",
		"of what is last":   "AFTER UPDATE ON badged.jobs",
		"before everything": "AFTER INSERT ON badged.events_p02",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d := projectortest.New(t)
			populate(t, d)
			d.Exec(t, `DELETE FROM badged.audit`)
			before := ofOthers(t, d, id)
			folding(t, d)
			end := d.KillAt(t, trigger, "badged user erase")
			if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: id, Patience: time.Second}); err == nil {
				t.Fatal("it was not killed")
			}
			end()
			d.AwaitFolded(t)
			replaytest.Verify(t, d.Pool, d.Log, near, far, id)
			erase(t, d, id)
			for _, table := range holds(t, d, id) {
				t.Errorf("the id is still in %s", table)
			}
			if diff := cmp.Diff(before, ofOthers(t, d, id)); diff != "" {
				t.Errorf("rows of others (-before +after):\n%s", diff)
			}
			replaytest.Verify(t, d.Pool, d.Log, near, far, id)
		})
	}
}

// Without a projector, events that name the user are not folded, and nothing is erased.
func TestEraseNeedsAProjector(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	d.StopFolding()
	d.Append(t, foldtest.Deliver("lunch", 8, id))
	before := exported(t, d, id, nil)
	_, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: id, Patience: time.Millisecond})
	if !errors.Is(err, erasure.ErrNotFolded) {
		t.Errorf("it returns %v", err)
	}
	// Erase made the user leave the room, which is one more event, and replaced the revocation by
	// a digest.
	if after := exported(t, d, id, nil); len(after) != len(before) {
		t.Errorf("%d holdings are left of %d", len(after), len(before))
	}
}

// eraseArchived erases a user from an archive too.
func eraseArchived(ctx context.Context, d *projectortest.Database, user, dir string) (erasure.Erased, error) {
	a, err := archive.Continue(ctx, archive.Folder(dir))
	if err != nil {
		return erasure.Erased{}, err
	}
	defer a.Close()
	return erasure.Erase(ctx, erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: user, Archive: a})
}

// inFiles returns the files of an archive that have a text when they are decompressed.
func inFiles(t testing.TB, dir, text string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		content, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(entry.Name(), ".zst") {
			z, err := zstd.NewReader(bytes.NewReader(content))
			if err != nil {
				t.Fatal(err)
			}
			if content, err = io.ReadAll(z); err != nil {
				t.Fatal(err)
			}
			z.Close()
		}
		if bytes.Contains(content, []byte(text)) {
			names = append(names, entry.Name())
		}
	}
	return names
}

// The user is erased from the archive, whose events go on giving the numbers of others,
// and which can be continued and restored.
func TestEraseFromAnArchive(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	populate(t, d)
	d.Exec(t, `DELETE FROM badged.audit`)
	archived(t, d, dir)
	d.Append(t, foldtest.Deliver("lunch", 9, id, near), foldtest.Event("late", events.RoomJoined, "hall", nil, foldtest.User(partition, 2)))
	d.Fold(t)
	if len(inFiles(t, dir, "the ghost")) != foldtest.Partitions {
		t.Fatalf("the id is in %v", inFiles(t, dir, "the ghost"))
	}
	before := ofOthers(t, d, id)
	folding(t, d)
	got, err := eraseArchived(t.Context(), d, id, dir)
	if err != nil {
		t.Fatal(err)
	}
	if want := (erasure.Counts{Erased: 2, Changed: 10}); got.Archived != want || got.Counts != (erasure.Counts{Erased: 1, Changed: 1}) {
		t.Errorf("the result is %+v", got)
	}
	if left := inFiles(t, dir, "the ghost"); left != nil {
		t.Errorf("the id is still in %v", left)
	}
	for _, table := range holds(t, d, "the ghost") {
		t.Errorf("the id is still in %s", table)
	}
	if diff := cmp.Diff(before, ofOthers(t, d, id)); diff != "" {
		t.Errorf("rows of others (-before +after):\n%s", diff)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, near, far, id)
	rebuilt(t, d)
	a := archived(t, d, dir)
	if n := len(a.Files(partition)); n != 2 {
		t.Errorf("after the archiving that follows there are %d files", n)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, near, far, id)
	if again, err := eraseArchived(t.Context(), d, id, dir); err != nil || again != (erasure.Erased{Partition: partition}) {
		t.Errorf("erased again: %+v, %v", again, err)
	}
}

// After a split, a file that names the user is deleted even if only the other child has the
// user's events, and that child's numbers do not change.
func TestEraseFromSharedFiles(t *testing.T) {
	d, dir := projectortest.New(t), t.TempDir()
	user, other := foldtest.User(0, 1), foldtest.User(0, 0) // of 4 and 8
	d.Append(t, foldtest.Event("join", events.RoomJoined, "hall", nil, user, other), foldtest.Event("post", events.RoomPosted, "hall", foldtest.Seq(1)))
	d.Append(t, foldtest.Deliver("c", 1, user), foldtest.Deliver("c", 2, other))
	d.Fold(t)
	archived(t, d, dir)
	d.StopFolding()
	splitPartition(t, d, 0)
	folding(t, d)
	before := ofOthers(t, d, user)
	got, err := eraseArchived(t.Context(), d, user, dir)
	if want := (erasure.Counts{Erased: 2}); err != nil || got.Archived != want {
		t.Errorf("the result is %+v: %v", got, err)
	}
	if left := inFiles(t, dir, fmt.Sprintf("%q", user)); left != nil {
		t.Errorf("the id is still in %v", left)
	}
	if diff := cmp.Diff(before, ofOthers(t, d, user)); diff != "" {
		t.Errorf("rows of others (-before +after):\n%s", diff)
	}
	replaytest.VerifyArchive(t, d.Pool, d.Log, dir, user, other)
}

// splitPartition splits a partition, and tells the log.
func splitPartition(t testing.TB, d *projectortest.Database, partition int) {
	t.Helper()
	if _, err := splitting.Split(t.Context(), splitting.Config{Pool: d.Pool, Log: d.Log, Partition: partition}); err != nil {
		t.Fatal(err)
	}
	if err := d.Log.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// Wherever an erasure from an archive is killed, the archive can be read, and the next
// one does the rest.
func TestKilledErasureFromAnArchive(t *testing.T) {
	for name, trigger := range map[string]string{
		"before the manifest": "AFTER UPDATE OF next_sha256 ON badged.archived_files DEFERRABLE",
		"behind the manifest": "AFTER UPDATE OF sha256 ON badged.archived_files DEFERRABLE",
	} {
		t.Run(name, func(t *testing.T) {
			d, dir := projectortest.New(t), t.TempDir()
			populate(t, d)
			d.Exec(t, `DELETE FROM badged.audit`)
			archived(t, d, dir)
			folding(t, d)
			end := d.KillAt(t, trigger, "badged user erase")
			if _, err := eraseArchived(t.Context(), d, id, dir); err == nil {
				t.Fatal("it was not killed")
			}
			end()
			a, err := archive.OpenStore(t.Context(), archive.Folder(dir))
			if err != nil {
				t.Fatal(err)
			}
			for p := range foldtest.Partitions {
				if _, err := replay.ArchivedFiles(t.Context(), d.Pool, a, p); err != nil {
					t.Errorf("the archive does not match: %v", err)
				}
			}
			if _, err := eraseArchived(t.Context(), d, id, dir); err != nil {
				t.Fatal(err)
			}
			if left := inFiles(t, dir, "the ghost"); left != nil {
				t.Errorf("the id is still in %v", left)
			}
			replaytest.VerifyArchive(t, d.Pool, d.Log, dir, near, far, id)
		})
	}
}

// A log with an archive, a role that does not own the schema, and another job.
func TestEraseIsRefused(t *testing.T) {
	d := projectortest.New(t)
	populate(t, d)
	job, err := rebuild.NewJob(t.Context(), rebuild.Config{Pool: d.Pool, Log: d.Log}, "badged rebuild")
	if err != nil {
		t.Fatal(err)
	}
	var running *rebuild.RunningError
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: id}); !errors.As(err, &running) {
		t.Errorf("beside a rebuild it returns %v", err)
	}
	job.Close(t.Context())
	archived(t, d, t.TempDir())
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: d.Pool, Log: d.Log, Settle: -1, UserID: id}); !errors.Is(err, erasure.ErrArchived) {
		t.Errorf("with an archive it returns %v", err)
	}
}

// A server's role may not change the log, and the error names the role that may.
func TestEraseNeedsTheOwner(t *testing.T) {
	d := projectortest.Open(t, pgtest.NewServer(t).NewDB(t, projectortest.Migrated()))
	pool := d.AsRole(t, `GRANT USAGE ON SCHEMA badged TO ROLE`, `GRANT SELECT ON ALL TABLES IN SCHEMA badged TO ROLE`)
	var owner *pgsession.OwnerError
	if _, err := erasure.Erase(t.Context(), erasure.Config{Pool: pool, Log: d.Log, Settle: -1, UserID: id}); !errors.As(err, &owner) || owner.Role != "limited role" {
		t.Errorf("it returns %v", err)
	}
}

// A user who left several rooms by one event is erased, and the rooms' numbers of members do not
// change.
func TestEraseWhoLeftAll(t *testing.T) {
	d := projectortest.New(t)
	alone := foldtest.User(partition, 50) // of whose rooms the event has only one
	join := func(room string, users ...string) events.Event {
		return foldtest.Event("join "+room, events.RoomJoined, room, nil, users...)
	}
	post := func(room, category string) events.Event {
		return foldtest.Event("post "+room, events.RoomPosted, room, func(d *events.Data) { d.Seq, d.Category = 1, category })
	}
	d.Append(t, foldtest.Event("join alone", events.RoomJoined, "a", nil, alone)) // in a row of its own
	d.Append(t, join("a", id, near), join("b", id, near), join("c", id, near), post("a", "acme/a"), post("b", "acme/b"), post("c", "other"),
		foldtest.Event("leave", events.UserLeftAll, "", func(d *events.Data) { d.Category = "acme" }, id, near))
	d.Fold(t)
	folding(t, d)
	members := func() []string {
		return d.Lines(t, `SELECT format('%s %s', conversation_id, members) FROM badged.rooms WHERE partition_id = $1 ORDER BY 1`, partition)
	}
	before := members()
	erase(t, d, id)
	replaytest.Verify(t, d.Pool, d.Log, near, far, alone)
	rebuilt(t, d)
	if diff := cmp.Diff([]string{"a 1", "b 0", "c 2"}, before); diff != "" {
		t.Errorf("before: %s", diff)
	}
	if diff := cmp.Diff([]string{"a 1", "b 0", "c 1"}, members()); diff != "" {
		t.Errorf("after: %s", diff)
	}
}
