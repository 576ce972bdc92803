package projector

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

// noon is the time of these tests, in the middle of an hour.
var noon = time.Date(2026, 3, 10, 12, 30, 0, 0, time.UTC)

const week = 7 * 24 * time.Hour

// appendAgo appends events as if so long before noon, in the order of the log
// all the same.
func (d *database) appendAgo(t *testing.T, ago time.Duration, evs ...events.Event) {
	t.Helper()
	receipt := d.append(t, evs...)
	for _, p := range receipt.Partitions {
		d.exec(t, `UPDATE badged.`+events.Topic(p)+` SET created_at = $1 WHERE transaction_id = $2::bigint::text::xid8`,
			noon.Add(-ago), receipt.TransactionID)
	}
}

// same fails the test where two lists differ.
func same(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
