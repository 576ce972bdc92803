package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"
)

// The reads of operators that are recorded: they show what users did or wrote.
const (
	ReadExplanation = "user.explain"
	ReadDeadLetters = "deadletters.read"
	ReadExport      = "user.export"
)

const (
	// readInterval is how long the same read is not recorded again: pages poll.
	readInterval = 10 * time.Minute
	// maxReads bounds the reads that are remembered.
	maxReads = 1 << 12
)

// reads remembers which reads were recorded a moment ago. It is safe for
// concurrent use.
type reads struct {
	mu       sync.Mutex
	recorded map[string]time.Time
}

// isNew reports whether a read was not recorded within readInterval.
func (r *reads) isNew(read string, now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, ok := r.recorded[read]
	return !ok || now.Sub(at) >= readInterval
}

func (r *reads) add(read string, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.recorded == nil || len(r.recorded) >= maxReads {
		r.recorded = map[string]time.Time{}
	}
	r.recorded[read] = now
}

// Read records in the audit trail that an operator reads something, unless this
// process recorded the same within ten minutes. If it fails, the read must be
// refused.
func (s *Service) Read(ctx context.Context, by Operator, action string, arguments any) error {
	encoded, err := json.Marshal(arguments)
	if err != nil {
		return fmt.Errorf("encode the arguments of %s: %w", action, err)
	}
	read, now := string(by.Via)+" "+by.Name+" "+action+" "+string(encoded), time.Now()
	if !s.reads.isNew(read, now) {
		return nil
	}
	if _, err := s.pool.Exec(ctx, statements.Get("record a read"), by.Name, by.Via, action, string(encoded)); err != nil {
		return fmt.Errorf("record %s in the audit trail; nothing was shown: %w", action, err)
	}
	s.reads.add(read, now)
	return nil
}
