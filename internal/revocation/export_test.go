package revocation

import "context"

// Forget lets tests forget without waiting an hour.
func (l *List) Forget(ctx context.Context) error { return l.forget(ctx) }
