package conformance

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// restarts ends the client's program by closing its standard input, and starts it again.
func restarts() step {
	return restartsAfter(func(*performance) error { return nil })
}

// restartsAfter is like restarts, but calls the function `meanwhile` between the end of the
// program and its new start.
func restartsAfter(meanwhile func(*performance) error) step {
	return func(p *performance) error {
		p.note(time.Now(), "the client's program is ended and started again")
		if err := p.client.stdin.Close(); err != nil {
			return &failure{expected: "a client that reads commands", happened: "closing its standard input failed: " + err.Error()}
		}
		return p.startsAgain("the program to exit with 0 at the end of its standard input", func(err error) bool { return err == nil }, meanwhile)
	}
}

// truncates removes the second half of every file that the client has stored, as a power failure
// might.
func (p *performance) truncates() error {
	p.note(time.Now(), "the second half of each stored file is lost")
	p.lost = true
	return filepath.WalkDir(p.store, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		return os.Truncate(path, info.Size()/2)
	})
}

// signsIn makes anotherUser the user of the client's next run.
func (p *performance) signsIn() error {
	p.user = anotherUser
	p.note(time.Now(), "the user "+p.user+" signs in")
	p.held, p.before = state{}, nil
	return nil
}

// kills kills the client's program and starts it again. The program may then have lost its latest
// state.
func kills() step {
	return func(p *performance) error {
		p.note(time.Now(), "the client's program is killed and started again")
		if err := p.client.cmd.Process.Kill(); err != nil {
			return &failure{expected: "a program that runs", happened: "killing it failed: " + err.Error()}
		}
		p.lost = true
		return p.startsAgain("the program to end", func(error) bool { return true }, func(*performance) error { return nil })
	}
}

// startsAgain waits until the client's program has ended, and checks its exit error with the
// function `ended`. Then it calls the function `meanwhile` and starts the program again.
func (p *performance) startsAgain(expected string, ended func(error) bool, meanwhile func(*performance) error) error {
	p.conn, p.post, p.leaving = nil, nil, true
	p.overtaken = nil
	err := p.await(expected, func(e event) (bool, error) { return e.kind == exited && ended(e.err), nil })
	if err != nil {
		return err
	}
	<-p.client.ended
	if err := meanwhile(p); err != nil {
		return fmt.Errorf("between two runs of the client: %w", err)
	}
	p.leaving = false
	p.comeBack = time.Time{} // the new process does not know the reconnect_ms of the old connection
	p.states = []state{{}, p.held}
	if p.lost {
		p.states = append(slices.Clone(p.before), p.held)
	}
	p.shown = state{}
	p.client, err = p.start()
	return err
}
