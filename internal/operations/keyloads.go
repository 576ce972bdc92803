package operations

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
)

// KeyLoad has the names of the API keys that a process has loaded. It never has secrets.
type KeyLoad struct {
	// Keys has the current keys.
	Keys []string `json:"keys"`
	// Added, Changed and Removed are the differences from the keys that were loaded before.
	Added   []string `json:"added,omitempty"`
	Changed []string `json:"changed,omitempty"`
	Removed []string `json:"removed,omitempty"`
	// Started is true if the process loaded the keys at its start. Such a load is recorded only if
	// its keys differ from the keys in the audit trail's last entry about API keys.
	Started bool `json:"-"`
}

// KeyLoads records changes of keys in the audit trail. It is safe for concurrent use.
type KeyLoads struct {
	db      Execer
	log     *slog.Logger
	process string

	mu      sync.Mutex
	waiting []KeyLoad
}

// keyLoadInterval is the time between two attempts of Run to write pending entries.
const keyLoadInterval = time.Second

// NewKeyLoads returns the recorder of this process. Run writes its entries to db.
func NewKeyLoads(db Execer, log *slog.Logger) *KeyLoads {
	return &KeyLoads{db: db, log: log, process: ProcessName()}
}

// Loaded adds an entry that Run will write. It does not block.
func (k *KeyLoads) Loaded(l KeyLoad) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.waiting = append(k.waiting, l)
}

// Run writes pending entries to the audit trail at intervals until ctx is done, and then one last
// time. An entry that could not be written stays pending.
func (k *KeyLoads) Run(ctx context.Context) error {
	err := wait.Repeat(ctx, keyLoadInterval, func(ctx context.Context) {
		if err := k.record(ctx); err != nil && ctx.Err() == nil {
			k.log.WarnContext(ctx, "cannot record a change of keys in the audit trail, will try again", "error", err)
		}
	})
	return errors.Join(err, k.record(context.WithoutCancel(ctx)))
}

// record writes the pending entries in order, and stops at the first failure.
func (k *KeyLoads) record(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, endPatience)
	defer cancel()
	k.mu.Lock()
	waiting := k.waiting
	k.mu.Unlock()
	for i := range waiting {
		if err := k.write(ctx, &waiting[i]); err != nil {
			return err
		}
		k.mu.Lock()
		k.waiting = k.waiting[1:]
		k.mu.Unlock()
	}
	return nil
}

func (k *KeyLoads) write(ctx context.Context, l *KeyLoad) error {
	arguments, err := storedJSON(l)
	if err != nil {
		return fmt.Errorf("encode a change of keys: %w", err)
	}
	names, err := storedJSON(l.Keys)
	if err != nil {
		return fmt.Errorf("encode the names of keys: %w", err)
	}
	if _, err := k.db.Exec(ctx, statements.Get("record loaded keys"), storedText(k.process), arguments, l.Started, names); err != nil {
		return fmt.Errorf("record a change of keys in the audit trail: %w", err)
	}
	return nil
}
