package migrations_test

import (
	"math"
	"testing"

	"github.com/jackc/pgx/v5"
)

// badged.rank and badged.above count the messages of a set at or below a seq, and
// above it.
func TestRank(t *testing.T) {
	cfg := emptyDatabase(t)
	up(t, cfg, 1)
	conn, err := pgx.ConnectConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	for _, set := range [][][2]int64{
		{},
		{{1, 1}},
		{{1, 9}},
		{{2, 2}, {4, 4}, {7, 7}, {math.MaxInt64, math.MaxInt64}},
		{{2, 3}, {5, 5}, {7, 9}},
		{{4, 4}, {math.MaxInt64 - 1, math.MaxInt64}},
		{{1, math.MaxInt64}},
	} {
		var starts, before []int64
		total := int64(0)
		for _, r := range set {
			if before == nil {
				before = []int64{0}
			}
			total += r[1] - r[0] + 1
			starts, before = append(starts, r[0]), append(before, total)
		}
		if total == int64(len(starts)) {
			before = nil
		}
		for _, seq := range []int64{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, math.MaxInt64 - 1, math.MaxInt64} {
			want := int64(0)
			for _, r := range set {
				want += max(0, min(r[1], seq)-r[0]+1)
			}
			var rank, above int64
			err := conn.QueryRow(t.Context(), `SELECT badged.rank($1, $2, $3), badged.above($1, $2, $3)`, seq, starts, before).Scan(&rank, &above)
			if err != nil {
				t.Fatal(err)
			}
			if rank != want || above != total-want {
				t.Errorf("in %v, %d messages are up to %d and %d above, want %d and %d", set, rank, seq, above, want, total-want)
			}
		}
	}
}
