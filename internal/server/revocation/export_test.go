package revocation

import (
	"context"
	"time"
)

// PageRows is how many rows one statement reads, ForgetRows how many one transaction deletes,
// and StaleAfter how old the last read may be.
const (
	PageRows   = pageRows
	ForgetRows = forgetRows
	StaleAfter = staleAfter
)

// Forget lets tests forget without waiting an hour. It reports whether there may be more.
func (l *List) Forget(ctx context.Context) (bool, error) { return l.forget(ctx) }

// Read lets tests read what is new and one page of what is old. It reports whether there are
// more of these.
func (l *List) Read(ctx context.Context) (bool, error) { return l.read(ctx) }

// Follow lets tests read what is new.
func (l *List) Follow(ctx context.Context) error { return l.follow(ctx) }

// Age makes the last read older.
func (l *List) Age(by time.Duration) {
	older := l.readAt.Load().Add(-by)
	l.readAt.Store(&older)
}

// Users returns how many users with revoked tokens are known.
func (l *List) Users() (users int64) {
	for _, t := range l.tables() {
		users = max(users, t.users.Load())
	}
	return users
}
