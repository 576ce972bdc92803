package relay

import (
	"iter"
	"slices"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
)

// row is an event in the outbox.
type row struct {
	offset  int64
	payload string
	event   events.Event
}

// refusal is an event that badged refuses.
type refusal struct {
	offset int64
	reason string
}

// page has the rows of one read of the outbox.
type page struct {
	rows []row
	// passed and open replace the carrier's fields of the same names after the rows are carried.
	passed int64
	open   openTransactions
}

// decode decodes the events of rows. It returns the rows with valid events, and a refusal for each
// other row.
func decode(rows []row) (good []row, refused []refusal) {
	good = make([]row, 0, len(rows))
	for i := range rows {
		r := rows[i]
		var err error
		r.event, err = events.Decode([]byte(r.payload))
		if err == nil {
			err = r.event.CheckReserved()
		}
		if err != nil {
			refused = append(refused, refusal{r.offset, err.Error()})
			continue
		}
		good = append(good, r)
	}
	return good, refused
}

// stages yields the rows of one stage of [cluster.SplitAtJoins] after another. For a single
// database, it yields all rows at once.
func (c *carrier) stages(rows []row) iter.Seq[[]row] {
	return func(yield func([]row) bool) {
		ends := []int{len(rows)}
		if c.cfg.Divided != nil {
			ends = cluster.SplitAtJoins(eventsOf(rows))
		}
		began := 0
		for _, end := range ends {
			if began < end && !yield(rows[began:end]) {
				return
			}
			began = end
		}
	}
}

func eventsOf(rows []row) []events.Event {
	evs := make([]events.Event, len(rows))
	for i := range rows {
		evs[i] = rows[i].event
	}
	return evs
}

// split divides rows into `matching`, for which the function `matches` returns true, and `others`.
func split(rows []row, matches func(*row) bool) (matching, others []row) {
	for i := range rows {
		if matches(&rows[i]) {
			matching = append(matching, rows[i])
		} else {
			others = append(others, rows[i])
		}
	}
	return matching, others
}

// among returns a function that reports whether a row is among the refused rows.
func among(refused []refusal) func(*row) bool {
	return func(r *row) bool {
		return slices.ContainsFunc(refused, func(f refusal) bool { return f.offset == r.offset })
	}
}
