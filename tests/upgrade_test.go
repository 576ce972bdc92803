package tests

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// previousRelease builds the previous release, whose commit is in
// upgrade/previous, and returns the path of the program. The test is skipped,
// with a message on standard error, only if there is no Git history to build
// from, as in an archive or a shallow clone.
func previousRelease(t *testing.T) (program string) {
	t.Helper()
	text, err := os.ReadFile("upgrade/previous")
	if err != nil {
		t.Fatal(err)
	}
	commit := strings.TrimSpace(string(text))
	git := func(args ...string) ([]byte, error) {
		// The owner of the files may be another user, as in a container.
		return exec.CommandContext(t.Context(), "git", append([]string{"-c", "safe.directory=*", "-C", ".."}, args...)...).Output()
	}
	shallow, err := git("rev-parse", "--is-shallow-repository")
	noHistory := err != nil || strings.TrimSpace(string(shallow)) == "true"
	if _, err := git("cat-file", "-e", commit+"^{commit}"); err != nil {
		if !noHistory {
			t.Fatalf("tests/upgrade/previous names the commit %s, which the history does not have: write down that of the release before this", commit)
		}
		fmt.Fprintf(os.Stderr, "\n#### UPGRADES WERE NOT CHECKED: the git history lacks the commit %s; run `git fetch --unshallow`\n\n", commit)
		t.Skipf("no history with the commit %s", commit)
	}
	sources, err := git("archive", "--format=tar", commit)
	if err != nil {
		t.Fatalf("git archive %s: %v", commit, err)
	}
	dir := t.TempDir()
	unpack(t, sources, dir)
	program = filepath.Join(dir, "badged-previous")
	// Without the paths of the temporary directory, Go caches the build.
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", program, "./cmd/badged")
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the release before: %v\n%s", err, out)
	}
	return program
}

// unpack unpacks a tar archive made by git.
func unpack(t *testing.T, archive []byte, dir string) {
	t.Helper()
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		header, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		switch header.Typeflag {
		case tar.TypeDir:
			err = root.MkdirAll(strings.TrimSuffix(header.Name, "/"), 0o755)
		case tar.TypeReg:
			var content []byte
			if content, err = io.ReadAll(r); err == nil {
				err = root.WriteFile(header.Name, content, 0o644)
			}
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// join starts an instance with all roles and adds it to the living ones.
func (f *fleet) join(program string, args ...string) *process {
	f.t.Helper()
	p := launch(f.t, func(c *exec.Cmd) { c.Path = program },
		append([]string{"serve", "--listen=127.0.0.1:0", "--database-url=" + f.database, "--redis-url=" + f.redis}, args...)...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.living = append(f.living, p)
	return p
}

// leave stops an instance, as an upgrade does.
func (f *fleet) leave(p *process) {
	f.t.Helper()
	f.mu.Lock()
	f.living = slices.DeleteFunc(f.living, func(other *process) bool { return other == p })
	f.mu.Unlock()
	if err := p.stop(); err != nil {
		f.t.Errorf("an instance that was stopped ended with %v", err)
	}
}

// hear checks that a user connected to each instance gets a message published
// at each of them: the bus carries updates between releases.
func (f *fleet) hear(user string, ledger *ledger, instances ...*process) {
	f.t.Helper()
	var clients []*client
	for _, p := range instances {
		clients = append(clients, connect(f.t, p.url, user))
	}
	for i, p := range instances {
		e := events.Event{
			ID: fmt.Sprintf("%s/%d", user, i), Source: "backend", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: "of " + user, Seq: int64(i + 1), UserIDs: []string{user}},
		}
		body, err := e.MarshalJSON()
		if err != nil {
			f.t.Fatal(err)
		}
		p.mustPost(string(body))
		ledger.add([]events.Event{e})
		for _, c := range clients {
			c.awaitTotal(int64(i + 1))
		}
	}
	for _, c := range clients {
		c.close()
	}
}

// A fleet of the previous release is upgraded to this one, back, and again,
// while four backends publish through it and in SQL. As docs/operations.md
// says, the schema is migrated first. Every instance counts correctly on
// either schema, and there are no dead letters.
func TestUpgrade(t *testing.T) {
	t.Parallel()
	before := previousRelease(t)
	database := pgtest.NewServer(t).NewDB(t, pgtest.Template{})
	if out, err := exec.CommandContext(t.Context(), before, "migrate", "up", fmt.Sprint("--partitions=", partitions), "--database-url="+database).CombinedOutput(); err != nil {
		t.Fatalf("migrate as before: %v\n%s", err, out)
	}
	pool, err := pgxpool.New(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	f := &fleet{t: t, database: database, redis: newRedis(t).URL()}
	old := []*process{f.join(before), f.join(before)}

	ctx, cancel := context.WithCancel(t.Context())
	publishing, stop := context.WithCancel(ctx)
	defer stop()
	ledger := &ledger{grown: make(chan struct{})}
	var backends sync.WaitGroup
	defer func() { cancel(); backends.Wait() }()
	publish := func(n uint64, how func(*backend) error) {
		backends.Go(func() {
			b := &backend{n: n, random: rand.New(rand.NewPCG(n, 9)), pool: pool, ledger: ledger}
			for publishing.Err() == nil {
				if err := how(b); err != nil {
					if ctx.Err() == nil {
						t.Errorf("backend %d: %v", n, err)
					}
					cancel() // waiting for what does not come
				}
			}
		})
	}
	publish(0, func(b *backend) error { return b.transact(ctx, true, nil, nil) })
	publish(2, func(b *backend) error { return b.post(ctx, f) })
	publish(3, func(b *backend) error { return b.post(ctx, f) })
	const some = 50
	ledger.await(ctx, some)

	refusesOrServes(t, f)
	must(t, "migrate", "up", "--database-url="+database) // while the release before serves
	ledger.await(ctx, some)
	// From here on, backends may use this release's package.
	publish(1, func(b *backend) error { return b.transact(ctx, false, nil, nil) })

	f.leave(old[0]) // one of the release before starts on the schema of this
	old[0] = f.join(before, "--migrate")
	ledger.await(ctx, some)

	now := []*process{f.join(binary)}
	f.hear("ann", ledger, old[0], now[0])
	f.leave(old[0])
	now = append(now, f.join(binary, "--migrate"))
	f.leave(old[1])
	ledger.await(ctx, some)

	back := f.join(before) // on rows that this release has written
	f.hear("bob", ledger, now[0], back)
	f.leave(now[0])
	f.leave(now[1])
	ledger.await(ctx, some)

	f.join(binary)
	f.leave(back)
	ledger.await(ctx, some)
	stop()
	backends.Wait()
	if t.Failed() {
		return
	}
	t.Logf("%d events were committed meanwhile", len(ledger.committed))
	checkChurned(t, f, ledger)
	if out := must(t, "deadletters", "list", "--database-url="+database); out != "there are no dead letters\n" {
		t.Errorf("there are dead letters:\n%s", out)
	}
}

// refusesOrServes starts this release on the schema of the previous one: it
// serves if the schemas are equal, and otherwise fails with an error that says
// what to do, and changes nothing.
func refusesOrServes(t *testing.T, f *fleet) {
	t.Helper()
	status, _, code := command(t, "migrate", "status", "--database-url="+f.database)
	if code == 0 {
		f.leave(f.join(binary))
		return
	}
	if _, stderr, code := command(t, "serve", "--listen=127.0.0.1:0", "--database-url="+f.database,
		"--publisher-keys=backend="+publisherKey); code != 1 || !strings.Contains(stderr, "; run `badged migrate up`, or serve with --migrate") {
		t.Errorf("on the schema of the release before it exits with %d and says\n%s", code, stderr)
	}
	if again, _, _ := command(t, "migrate", "status", "--database-url="+f.database); again != status {
		t.Errorf("it has migrated without being told to:\n%s", again)
	}
}
