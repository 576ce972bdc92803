package obs

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newRepeatsLogger returns a logger and a function for its output, without
// times.
func newRepeatsLogger() (log *slog.Logger, written func() []string) {
	b := &lines{}
	text := slog.NewTextHandler(b, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})
	return slog.New(newRepeats(text)), b.take
}

// lines is a writer that keeps its lines.
type lines struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(b)
}

func (l *lines) take() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.buf.Reset()
	return strings.Split(strings.TrimSpace(l.buf.String()), "\n")
}

func TestErrorsThatRepeatAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written := newRepeatsLogger()
		fail := func(partition int) {
			log.Error("fold failed", "partition", partition, "error", errors.New("file 16384 is full (SQLSTATE 53100)"))
		}
		for i := range 150 { // once a second
			fail(i % 16)
			time.Sleep(time.Second)
		}
		time.Sleep(repeatQuiet)
		synctest.Wait()
		want := []string{
			`level=ERROR msg="fold failed" partition=0 error="file 16384 is full (SQLSTATE 53100)"`,
			`level=ERROR msg="fold failed" partition=12 error="file 16384 is full (SQLSTATE 53100)" repeated=59`,
			`level=ERROR msg="fold failed" partition=8 error="file 16384 is full (SQLSTATE 53100)" repeated=59`,
			`level=INFO msg="an error has stopped repeating" was="fold failed" error="file 16384 is full (SQLSTATE 53100)" times=150 repeated=29`,
		}
		if diff := cmp.Diff(want, written()); diff != "" {
			t.Error(diff)
		}

		fail(1) // a new error, which does not repeat
		time.Sleep(time.Hour)
		synctest.Wait()
		if diff := cmp.Diff([]string{`level=ERROR msg="fold failed" partition=1 error="file 16384 is full (SQLSTATE 53100)"`}, written()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestDifferentErrorsAreAllLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written := newRepeatsLogger()
		places := []func(message, err string){
			func(message, err string) { log.Warn(message, "error", err) },
			func(message, err string) { log.With("part", 1).WithGroup("g").Warn(message, "error", err) },
			func(message, err string) { log.Error(message, "error", err) },
		}
		for range 2 {
			for _, place := range places {
				place("poll failed", "cannot be reached")
				place("read failed", "cannot be reached")
				place("poll failed", "at 3: is full (SQLSTATE 53100)")
				place("poll failed", "at 4: is full (SQLSTATE 53200)")
			}
		}
		if n := len(written()); n != 12 {
			t.Errorf("%d lines, want 12", n)
		}
		for range 2 {
			log.Info("ready", "error", "no more than a word")
			log.Warn("another projector folds this partition too")
			log.Warn("a job has failed", "id", 7, "error", "canceled")
			log.Error("the badge of a user differs from the log", "user", "ada")
		}
		if n := len(written()); n != 8 {
			t.Errorf("%d lines, want 8", n)
		}
		time.Sleep(repeatQuiet)
		synctest.Wait()
	})
}

// The number of remembered errors is bounded; errors beyond that are all
// logged.
func TestManyErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, written := newRepeatsLogger()
		for range 2 {
			for i := range maxRepeats + 5 {
				log.Warn("failed", "error", strings.Repeat("x", i))
			}
		}
		if n := len(written()); n != maxRepeats+10 {
			t.Errorf("%d lines, want %d", n, maxRepeats+10)
		}
		time.Sleep(repeatQuiet)
		synctest.Wait()
	})
}
