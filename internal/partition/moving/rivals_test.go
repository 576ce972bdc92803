package moving_test

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/partition/copier"
	"github.com/badged/badged/internal/partition/moving"
)

var (
	rivals    = flag.Int("rivals", 3, "how often two processes move a partition at the same time")
	rivalSeed = flag.Uint64("rival-seed", 0, "what TestRivalMovers begins with, 0 for anything")
)

// undoCommand stands for the name of a target.
const undoCommand = "--undo"

// command is a process that moves a partition, or undoes that.
type command struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	steps *bufio.Scanner
}

// newCommand starts a process that waits until it is told to begin.
func newCommand(t *testing.T, a, b *projectortest.Database, to string) *command {
	t.Helper()
	c := &command{cmd: exec.CommandContext(t.Context(), os.Args[0], "-test.run=^$")}
	c.cmd.Env = append(os.Environ(), moveEnv+"="+a.URL+" "+b.URL+" "+to+" told")
	var out io.ReadCloser
	var err error
	if c.in, err = c.cmd.StdinPipe(); err == nil {
		out, err = c.cmd.StdoutPipe()
	}
	c.cmd.Stderr = c.cmd.Stdout
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	c.steps = bufio.NewScanner(out)
	c.steps.Scan() // it waits
	return c
}

func (c *command) begin() { _, _ = io.WriteString(c.in, "\n") } // it may be dead

// end waits for the end of the process, and returns what it has said and whether it succeeded.
func (c *command) end() (said string, ok bool) {
	var lines []string
	for c.steps.Scan() {
		lines = append(lines, c.steps.Text())
	}
	return strings.Join(lines, "; "), c.cmd.Wait() == nil
}

// clear says whether a command says why it has done nothing.
func clear(said string) bool {
	return slices.ContainsFunc([]string{
		moving.ErrSameShard.Error(), moving.ErrNoMove.Error(), moving.ErrOtherMove.Error(),
		"is no longer on a", "is no longer on b", "another move of it was interrupted",
		"a rebuild, archiving, move or split is running", "has released partition 0 already: finish the move",
	}, func(why string) bool { return strings.Contains(said, why) })
}

// One process moves a partition and may be killed. At a random step of this move, another process
// moves the same partition, moves it back, or undoes the move. Afterwards one shard holds the
// partition, no event is lost or counts twice, and each command has succeeded or returned a clear
// error.
func TestRivalMovers(t *testing.T) {
	t.Parallel()
	seed := *rivalSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-rival-seed=%d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	a, b, _ := newServers(t)
	running(t, a, b)
	l := newLoad(a, b, 0, 20)
	stop := l.publish(t, 2)
	defer stop()
	names := []string{"a", "b"}
	cfg := config(a, b, 0, "")
	for range *rivals {
		at := slices.Index(names, holders(t, cfg.Databases))
		from, to := names[at], names[1-at]
		rival := []string{to, undoCommand, from}[random.IntN(3)]
		moment, kill := random.IntN(9), random.IntN(4) == 0
		first, second := newCommand(t, a, b, to), newCommand(t, a, b, rival)
		first.begin()
		for n := 0; n < moment && first.steps.Scan(); n++ {
			continue
		}
		if kill {
			_ = first.cmd.Process.Kill() // it may have ended
		}
		second.begin()
		one, moved := first.end()
		other, done := second.end()
		story := fmt.Sprintf("from %s to %s, killed %v; at its step %d, %s:\n%s\n%s", from, to, kill, moment, rival, one, other)
		if !moved && !kill && !clear(one) || !done && !clear(other) {
			t.Errorf("%s\nit is not clear why one has failed", story)
		}
		held := holders(t, cfg.Databases)
		if held == "" && kill { // between the commits
			if _, is, err := moving.Complete(t.Context(), cfg.Databases, 0); err != nil || !is {
				t.Fatalf("%s\ncompleting gives %v, %v", story, is, err)
			}
			held = holders(t, cfg.Databases)
		}
		switch {
		case len(held) != 1:
			t.Fatalf("%s\nthe partition is on %q", story, held)
		case !kill && !moved && !done:
			t.Errorf("%s\nneither has done anything", story)
		case done && (held == to) != (rival == to), moved && !done && held != to:
			t.Errorf("%s\nthe partition is on %s", story, held)
		}
		t.Logf("%s\nthe partition is on %s", story, held)
		// End a move that both have left.
		if list, err := moving.List(t.Context(), cfg.Databases, []int{0}, func(int) string { return held }, time.Minute); err != nil {
			t.Fatal(err)
		} else if list[0].State != moving.Serving {
			again := cfg
			again.To = list[0].To
			move(t, again)
		}
	}
	stop()
	l.check(t, 0)
}

// tell makes a process of TestRivalMovers wait until it may begin, and then tell its steps.
func tell(cfg *moving.Config) {
	fmt.Println("waits")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	cfg.Progress = func(step copier.Step, _ int64) { fmt.Println(step) }
}

// moveProcess moves partition 0 between the databases at two URLs, or undoes a move.
func moveProcess(arguments string) {
	words := strings.Fields(arguments)
	cfg := moving.Config{To: words[2]}
	for n, url := range words[:2] {
		pool, err := pgxpool.New(context.Background(), url)
		if err != nil {
			panic(err)
		}
		cfg.Databases = append(cfg.Databases, moving.Database{Name: []string{"a", "b"}[n], Pool: pool, Log: events.Attach(pool, foldtest.Partitions)})
	}
	if len(words) > 3 {
		tell(&cfg)
	}
	var done any
	var err error
	if cfg.To == undoCommand {
		var from, to string
		from, to, err = moving.Undo(context.Background(), cfg)
		done = "undone from " + from + " to " + to
	} else {
		done, err = moving.Move(context.Background(), cfg)
	}
	fmt.Printf("%+v %v\n", done, err)
	if err != nil {
		os.Exit(1)
	}
}
