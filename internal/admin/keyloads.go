package admin

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// KeyLoad is what a process has loaded as keys: names, never secrets.
type KeyLoad struct {
	// Keys are those that count now.
	Keys []string `json:"keys"`
	// Added, Changed and Removed are the differences to those before.
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Started is set for the keys with which a process starts. The trail gets these
	// only if they are not those of its last entry.
	Started bool `json:"-"`
}

// KeyLoads records changes of keys in the audit trail. It is safe for concurrent use.
type KeyLoads struct {
	db      DB
	log     *slog.Logger
	process string
	wake    chan struct{}

	mu      sync.Mutex
	waiting []KeyLoad
}

// keyLoadRetry is the pause before the trail is tried again.
const keyLoadRetry = time.Second

// NewKeyLoads returns a record of the keys of this process.
func NewKeyLoads(db DB, log *slog.Logger) *KeyLoads {
	return &KeyLoads{db: db, log: log, process: ProcessName(), wake: make(chan struct{}, 1)}
}

// Loaded records that keys were loaded. It does not block.
func (k *KeyLoads) Loaded(l KeyLoad) {
	k.mu.Lock()
	k.waiting = append(k.waiting, l)
	k.mu.Unlock()
	k.signal()
}

func (k *KeyLoads) signal() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// Run writes entries until ctx is done, and then the last ones. What the database does
// not take is tried again.
func (k *KeyLoads) Run(ctx context.Context) error {
	for {
		select {
		case <-k.wake:
		case <-ctx.Done():
			return k.record(context.WithoutCancel(ctx))
		}
		if err := k.record(ctx); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "a change of keys is not in the audit trail yet", "error", err)
			time.AfterFunc(keyLoadRetry, k.signal)
		}
	}
}

// record writes what is waiting, in its order.
func (k *KeyLoads) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	for {
		k.mu.Lock()
		if len(k.waiting) == 0 {
			k.mu.Unlock()
			return nil
		}
		next := k.waiting[0]
		k.mu.Unlock()
		if err := k.write(ctx, &next); err != nil {
			return err
		}
		k.mu.Lock()
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
	}
}

func (k *KeyLoads) write(ctx context.Context, l *KeyLoad) error {
	arguments, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("encode a change of keys: %w", err)
	}
	names, err := json.Marshal(l.Keys)
	if err != nil {
		return fmt.Errorf("encode the names of keys: %w", err)
	}
	if _, err := k.db.Exec(ctx, statements.Get("record loaded keys"), k.process, string(arguments), l.Started, string(names)); err != nil {
		return fmt.Errorf("record a change of keys in the audit trail: %w", err)
	}
	return nil
}
