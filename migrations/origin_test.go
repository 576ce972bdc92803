package migrations_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

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
			up(t, cfg, 2)
			undoExpiry(t, cfg)
			conn, err := pgx.ConnectConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close(t.Context())
			for _, sql := range []string{
				`DROP TABLE badged.log_origin`,
				`DELETE FROM badged.schema_migrations WHERE version_id = 6`, test.ahead,
			} {
				if _, err := conn.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			up(t, cfg, 0)
			var home bool
			err = conn.QueryRow(t.Context(), `SELECT xmin::text = transaction_id::text AND tableoid = table_id FROM badged.log_origin`).Scan(&home)
			if err != nil || home != test.home {
				t.Errorf("at home: %v, %v; want %v", home, err, test.home)
			}
		})
	}
}
