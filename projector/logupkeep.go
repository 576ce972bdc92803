package projector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// The log of a partition is in ranges of transaction ids, a table each, the last
// without an end. One that has an end, which the ids have passed, is complete,
// and can be archived.
const (
	// rangeSpan is for about how long a range lasts.
	rangeSpan = 7 * 24 * time.Hour
	// leastRange is how many transaction ids it has at least, all that the cluster
	// gives out: every range costs whoever reads the log a little.
	leastRange = 1 << 20
)

const extendLogSQL = `SELECT badged.extend_log($1, $2::interval, $3)`

// extendLog sees to it that the last range of the log, which has no end, is one
// that no event is due for yet.
func (p *partition) extendLog(ctx context.Context) error {
	for more := true; more; {
		err := p.projector.cfg.Pool.QueryRow(ctx, extendLogSQL, p.id, rangeSpan, leastRange).Scan(&more)
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == lockNotAvailable {
			return nil // nothing hurries: the range goes on meanwhile
		}
		if err != nil {
			return fmt.Errorf("extend the log of partition %d: %w", p.id, err)
		}
	}
	return nil
}
