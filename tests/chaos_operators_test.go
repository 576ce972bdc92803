//go:build chaos

package tests

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	// chaosCommand is how long a command may take during faults before it is killed.
	chaosCommand = 30 * time.Second
	// chaosMost is the number of partitions at which no more splits begin.
	chaosMost = 14
)

// said is the result of a command: its output and exit code.
type said struct {
	out, err string
	code     int // -1 if it was killed
}

// run runs a command of badged on all shards, and kills it at a time limit.
func (c *chaos) run(limit time.Duration, args ...string) said {
	ctx, cancel := context.WithTimeout(c.ctx, limit)
	defer cancel()
	cmd := exec.CommandContext(ctx, binary, slices.Concat(args, c.flags)...)
	cmd.Env = environment()
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	began := time.Now()
	err := cmd.Run() // its exit code says more
	how := said{out.String(), errOut.String(), cmd.ProcessState.ExitCode()}
	text := fmt.Sprintf("%s: exit %d after %s", strings.Join(args, " "), how.code, time.Since(began).Round(time.Millisecond))
	if err != nil && ctx.Err() != nil {
		text = fmt.Sprintf("%s: killed after %s", strings.Join(args, " "), limit.Round(time.Millisecond))
	}
	if last := strings.TrimSpace(how.err); last != "" {
		text += ": " + last[strings.LastIndexByte(last, '\n')+1:]
	}
	c.note("%s", text)
	for _, bad := range []string{"panic:", "DATA RACE", "differs from the log", "differ from the log", "differed from the log"} {
		if strings.Contains(how.out+how.err, bad) {
			c.t.Errorf("%v says\n%s%s", args, how.out, how.err)
		}
	}
	return how
}

// listedPartition is a partition in the output of `badged partition list`.
type listedPartition struct {
	Partition int
	Shard     string
	State     string
	To        string
}

// list returns the partitions, or nothing while a shard is unavailable.
func (c *chaos) list() (all []listedPartition) {
	how := c.run(chaosCommand, "partition", "list", "--json")
	if how.code != 0 {
		return nil
	}
	if err := json.Unmarshal([]byte(how.out), &all); err != nil {
		c.t.Errorf("the list of partitions: %v\n%s", err, how.out)
	}
	return all
}

// rearrange moves and splits partitions, and kills about half of these commands, until done
// is closed.
func (c *chaos) rearrange(done <-chan struct{}) {
	random := c.randomOf("moves")
	for resting(done, random, 300) {
		all := c.list()
		if len(all) == 0 {
			continue
		}
		p := all[random.IntN(len(all))]
		limit := chaosCommand
		if random.IntN(2) == 0 {
			limit = time.Duration(50+random.IntN(1500)) * time.Millisecond
		}
		number := fmt.Sprint(p.Partition)
		c.moves++
		switch n := random.IntN(10); {
		case p.State == "moving" && n < 4:
			c.run(limit, "partition", "move", number, "--undo", "--quiet")
		case c.unfinished[p.Partition] && n < 4:
			if c.run(limit, "partition", "split", number, "--undo", "--quiet").code == 0 {
				delete(c.unfinished, p.Partition)
			}
		case n < 3 && len(all) < chaosMost:
			c.unfinished[p.Partition] = true
			if c.run(limit, "partition", "split", number, "--quiet").code == 0 {
				delete(c.unfinished, p.Partition)
			}
		default:
			to := string(rune('a' + random.IntN(chaosShards)))
			if p.To != "" && n < 8 {
				to = p.To
			}
			c.run(limit, "partition", "move", number, "--to="+to, "--quiet")
		}
	}
}

// resting waits for a short random time, and returns false once done is closed.
func resting(done <-chan struct{}, random *rand.Rand, atMost int) bool {
	select {
	case <-done:
		return false
	case <-time.After(time.Duration(random.IntN(atMost)) * time.Millisecond):
		return true
	}
}

// operate runs other commands until done is closed. Commands may fail during faults, and some are
// killed, but none may report a difference between tables and log.
func (c *chaos) operate(done <-chan struct{}) {
	random := c.randomOf("commands")
	// Ghosts whose erasure was interrupted. Until the erasure is repeated, the archive may
	// have events of a ghost whose rows are already deleted.
	half := map[string]bool{}
	erase := func(limit time.Duration, ghost string) {
		if c.run(limit, c.withArchive("user", "erase", ghost)...).code == 0 {
			delete(half, ghost)
		} else {
			half[ghost] = true
		}
	}
	for resting(done, random, 1000) {
		limit := chaosCommand
		if random.IntN(4) == 0 {
			limit = time.Duration(50+random.IntN(1500)) * time.Millisecond
		}
		switch random.IntN(8) {
		case 0:
			c.run(limit, "verify", "--quiet")
		case 1:
			for ghost := range half {
				erase(chaosCommand, ghost)
			}
			if len(half) == 0 {
				c.run(limit, c.withArchive("verify", "--quiet")...)
			}
		case 2:
			c.run(limit, "rebuild", "--quiet")
		case 3:
			c.cutLogs()
			c.run(limit, c.archiving()...)
		case 4:
			c.run(limit, c.withArchive("user", "export", chaosUser(random.IntN(chaosUsers)))...)
		case 5:
			c.run(limit, c.withArchive("user", "explain", chaosUser(random.IntN(chaosUsers)))...)
		case 6:
			c.run(limit, c.withArchive("rebuild", "--quiet", "--user="+chaosUser(random.IntN(chaosUsers)))...)
		case 7:
			erase(limit, chaosGhost(random.IntN(chaosGhosts)))
		}
	}
}

// withArchive adds the archive to the arguments of a command, once a shard has archived.
func (c *chaos) withArchive(args ...string) []string {
	if manifests, err := filepath.Glob(filepath.Join(c.archive, "*", "manifest.json")); err != nil || len(manifests) == 0 {
		return args
	}
	return append(args, "--archive="+c.archive)
}

// archiving returns the arguments of the command that archives all events up to now.
func (c *chaos) archiving() []string {
	return []string{"archive", "--quiet", "--to=" + c.archive, "--before=" + time.Now().UTC().Format(time.RFC3339Nano)}
}

// cutLogs begins new ranges of the logs, so that the earlier ranges can be archived. It skips
// unavailable shards.
func (c *chaos) cutLogs() {
	ctx, cancel := context.WithTimeout(c.ctx, chaosPatience)
	defer cancel()
	for _, url := range c.urls {
		conn, err := pgx.Connect(ctx, url)
		if err != nil {
			continue
		}
		_, _ = conn.Exec(ctx, `SELECT badged.extend_log(p, '0', 0) FROM badged.existing_partitions() AS p`)
		_ = conn.Close(ctx) // it may have failed
	}
}

// finishOperations completes the interrupted moves and splits. A split starts over each time, so
// it gets enough time and a longer pause, as an operator of a busy machine would allow.
func (c *chaos) finishOperations() {
	c.t.Helper()
	for range c.settling("moves and splits to end", nil) {
		all := c.list()
		left := len(c.unfinished)
		for p := range c.unfinished {
			args := []string{"partition", "split", fmt.Sprint(p), "--max-pause=3s"}
			if how := c.run(chaosSettles, args...); how.code == 0 || strings.Contains(how.err, "was split") {
				delete(c.unfinished, p)
			}
		}
		for _, p := range all {
			if p.State != "serving" && p.To != "" {
				left++
				c.run(chaosSettles, "partition", "move", fmt.Sprint(p.Partition), "--to="+p.To, "--max-pause=3s")
			}
		}
		if len(all) > 0 && left == 0 {
			return
		}
	}
}
