package events_test

import (
	"errors"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pg/embedpg"
)

// A physical copy of a cluster keeps its transaction ids: the log opens on a
// standby, and after its promotion.
func TestPhysicalCopyOpens(t *testing.T) {
	primary := pgtest.NewServer(t)
	log, pool := openLog(t, primary.NewDB(t, migrated))
	mustAppend(t, log, delivered("1", userIn(0, 0)))
	// Maintenance that rewrites the row does not change its meaning.
	for _, sql := range []string{`VACUUM FREEZE badged.log_home`, `VACUUM FULL badged.log_home`} {
		if _, err := pool.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	openLog(t, pool.Config().ConnString())

	dir := pgtest.OpenDir(t)
	primary.Run(t, nil, "pg_basebackup", "--dbname="+primary.URL(), "--pgdata="+filepath.Join(dir, "pgdata"),
		"--checkpoint=fast", "--wal-method=stream", "--no-manifest", "--no-sync", "--write-recovery-conf")
	standby, err := embedpg.Start(t.Context(), embedpg.Config{DataDir: dir, Settings: pgtest.Settings()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(t.Context()); err != nil && t.Context().Err() == nil {
			t.Error(err)
		}
	})
	name := databaseOf(t, pool.Config().ConnString())
	copied, copyPool := openLog(t, standby.DatabaseURL(name))
	if got := stored(t, copyPool)[0]; len(got) != 1 {
		t.Errorf("the standby has %q", got)
	}
	if _, err := copyPool.Exec(t.Context(), `SELECT pg_promote()`); err != nil {
		t.Fatal(err)
	}
	openLog(t, standby.DatabaseURL(name))
	mustAppend(t, copied, delivered("2", userIn(0, 0)))
	openLog(t, standby.DatabaseURL(name))
	copyPool.Close() // before its server stops
}

func databaseOf(t *testing.T, connString string) string {
	t.Helper()
	u, err := url.Parse(connString)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Base(u.Path)
}

// A dump is refused if only some of its tables were restored.
func TestLogOfUnknownOriginIsRefused(t *testing.T) {
	for name, sql := range map[string]string{
		"no era":     `DELETE FROM badged.log_home`,
		"no settled": `UPDATE badged.settings SET settled_era = NULL`,
		"event":      `INSERT INTO badged.events_p03 (uuid, payload, era) VALUES (gen_random_uuid(), '{}', 1)`,
		"consumer":   `INSERT INTO badged.events_p02_offsets (consumer_group, offset_acked, last_processed_transaction_id, era) VALUES ('audit', 1, '4', 1)`,
		"position":   `UPDATE badged.events_p02_offsets SET last_processed_transaction_id = '9000000000'`,
	} {
		t.Run(name, func(t *testing.T) {
			_, pool := newLog(t)
			if _, err := pool.Exec(t.Context(), sql); err != nil {
				t.Fatal(err)
			}
			if _, err := events.Open(t.Context(), pool); !errors.Is(err, events.ErrRestored) {
				t.Errorf("the log opens with %v, want ErrRestored", err)
			}
		})
	}
}

// A row with a future transaction id in a log that was not copied does not
// block other readers.
func TestRowAheadBlocksNoReader(t *testing.T) {
	_, pool := newLog(t)
	if _, err := pool.Exec(t.Context(), `INSERT INTO badged.events_p03 (transaction_id, uuid, payload) VALUES ('99999999999', gen_random_uuid(), '{}')`); err != nil {
		t.Fatal(err)
	}
	openLog(t, pool.Config().ConnString())
}
