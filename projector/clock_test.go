package projector

import (
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/foldtest"
)

// Appends that fold take the time of the database, which they do not read, from the last
// measurement: one that was made before the clock of the database was set does not last.
func TestAppendsFollowTheClockOfTheDatabase(t *testing.T) {
	d := newDatabase(t)
	p, ann := d.newOwner(t, d.pool, 0), foldtest.User(0, 0)
	for i, set := range []time.Duration{-time.Hour, 30 * 24 * time.Hour} {
		p.clock.Set(time.Now().Add(set))
		p.measureClock(t.Context())
		appendTo(t, p, nil, foldtest.Deliver("c", int64(i+1), ann))
	}
	if late := d.lines(t, `SELECT created_at::text FROM badged.events_p00 WHERE abs(extract(epoch FROM clock_timestamp() - created_at)) > 60`); len(late) > 0 {
		t.Errorf("the log says that events were appended at %q", late)
	}
	p.clock.Set(time.Now().Add(time.Hour)) // as if only the clock of this machine were behind
	appendTo(t, p, nil, foldtest.Deliver("c", 3, ann))
	if late := d.lines(t, `SELECT created_at::text FROM badged.events_p00 WHERE created_at > clock_timestamp() + interval '50 minutes'`); len(late) != 1 {
		t.Errorf("appended by a database that is an hour ahead: %q", late)
	}
}
