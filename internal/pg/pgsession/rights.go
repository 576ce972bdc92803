package pgsession

import (
	"context"
	"fmt"
)

// OwnerError means that a command needs the owner of the schema badged, and that the role of the
// session is not the owner. Servers connect as another role than the owner, so that they cannot
// change the log.
type OwnerError struct{ Role, Owner, Action string }

// Error implements error.
func (e *OwnerError) Error() string {
	return fmt.Sprintf("the role %q may not %s: only the owner of the schema badged may; connect as %q, or as a member of it", e.Role, e.Action, e.Owner)
}

// CheckOwner fails with an [*OwnerError] unless the role of the session is the owner of the
// schema badged or a member of the owner. action completes the message "may not …".
func CheckOwner(ctx context.Context, q Querier, action string) error {
	e := &OwnerError{Action: action}
	var owns bool
	if err := q.QueryRow(ctx, `SELECT current_user, pg_get_userbyid(nspowner), pg_has_role(nspowner, 'USAGE') FROM pg_namespace WHERE nspname = 'badged'`).Scan(&e.Role, &e.Owner, &owns); err != nil {
		return fmt.Errorf("read the owner of the schema badged: %w", err)
	}
	if !owns {
		return e
	}
	return nil
}
