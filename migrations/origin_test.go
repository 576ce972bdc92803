package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/migrations"
)

// upTo applies the migrations up to a version, as an older release would have.
func upTo(t *testing.T, cfg *pgx.ConnConfig, partitions int, version int64) {
	t.Helper()
	if _, err := migrations.UpTo(t.Context(), cfg, partitions, version); err != nil {
		t.Fatal(err)
	}
}

// A log that was restored before it could say where it is at home is not taken
// for one of this cluster, where its ids give it away.
func TestLogOriginOfALogThatIsAhead(t *testing.T) {
	for name, test := range map[string]struct {
		ahead string
		home  bool
	}{
		"nothing":  {`SELECT`, true},
		"event":    {`INSERT INTO badged.events_p01 (transaction_id, uuid, payload) VALUES ('9000000000', gen_random_uuid(), '{}')`, false},
		"consumer": {`UPDATE badged.events_p00_offsets SET last_processed_transaction_id = '9000000000'`, false},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := emptyDatabase(t)
			upTo(t, cfg, 2, 5)
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			if _, err := conn.Exec(t.Context(), test.ahead); err != nil {
				t.Fatal(err)
			}
			up(t, cfg, 0)
			var home bool
			err = conn.QueryRow(t.Context(), `SELECT xmin::text = transaction_id::text AND tableoid = table_id 
    AND (SELECT settled_era FROM badged.settings) = (SELECT era FROM badged.log_home) FROM badged.log_origin`).Scan(&home)
			if err != nil || home != test.home {
				t.Errorf("at home: %v, %v; want %v", home, err, test.home)
			}
		})
	}
}
