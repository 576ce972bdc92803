package embedpg

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"sync"
)

// keptLines is how many lines of the log an error includes.
const keptLines = 12

// serverLog receives a server's standard error line by line. It logs each line
// and keeps the last ones for errors. It is safe for concurrent use.
type serverLog struct {
	log *slog.Logger

	mu      sync.Mutex
	partial []byte
	last    []string
}

// Write implements io.Writer; it never fails.
func (l *serverLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, found := bytes.Cut(l.partial, []byte("\n"))
		if !found {
			return len(p), nil
		}
		l.take(string(line))
		l.partial = rest
	}
}

func (l *serverLog) take(line string) {
	if l.last = append(l.last, line); len(l.last) > keptLines {
		l.last = l.last[1:]
	}
	l.log.LogAttrs(context.Background(), severity(line), "postgres", slog.String("line", line))
}

// tail returns the last lines.
func (l *serverLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Join(l.last, "\n")
}

// severity returns the level of a line. ERROR and FATAL end a statement or a
// connection, whose client gets the error and knows whether it matters.
func severity(line string) slog.Level {
	switch name, _, _ := strings.Cut(line, ":"); name {
	case "PANIC":
		return slog.LevelError
	case "WARNING":
		return slog.LevelWarn
	default:
		return slog.LevelDebug
	}
}
