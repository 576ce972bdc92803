package cluster_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/cluster"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/schematest"
)

// lacking returns the partitions that a failure covers.
func lacking(s *cluster.PartialFailure) string {
	if s == nil {
		return ""
	}
	return cluster.List(s.Numbers())
}

// partial returns the PartialFailure of an append, nil if the error is none.
func partial(err error) *cluster.PartialFailure {
	lack, _ := errors.AsType[*cluster.PartialFailure](err)
	return lack
}

// AppendBestEffort appends where it can and reports the rest by whole shards, also after a
// partition has moved and for partitions that the caller skips.
func TestAppendBestEffort(t *testing.T) {
	server := pgtest.Borrow(t)
	all := databases(t, "a", "b")
	all = append(all, connect(t, "c", server.NewDB(t, schematest.Migrated(partitions))))
	form(t, all) // a has 0 and 1, b 2 and 3, c 4 and 5
	c := open(t, all)
	appender := cluster.NewAppender(c, func(s *cluster.Database) events.Append { return s.Log.AppendOwn })
	message := delivered("m", "")
	message.Data.UserIDs = []string{userOf(t, 0), userOf(t, 2), userOf(t, 4)}
	some := func(without ...int) *cluster.PartialFailure {
		t.Helper()
		left := make([]bool, partitions)
		for _, p := range without {
			left[p] = true
		}
		lack, err := appender.AppendBestEffort(t.Context(), left, message)
		if err != nil {
			t.Fatal(err)
		}
		return lack
	}
	count := func(want string) {
		t.Helper()
		var got []string
		for p := range partitions {
			d := all[slices.Index(c.Databases(), c.DatabaseOf(p))]
			got = append(got, read(t.Context(), t, d, fmt.Sprintf(`SELECT count(*)::text FROM badged.%s`, events.Topic(p))))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("rows in the log: %s, want %s", strings.Join(got, " "), want)
		}
	}
	if lack := some(); lack != nil {
		t.Errorf("all are there: %s lack it, %v", lacking(lack), lack.Err)
	}
	count("1 0 1 0 1 0")
	if lack := some(3); lacking(lack) != "2" || lack.Err != nil { // the rest of its shard
		t.Errorf("without 3: %s lack it", lacking(lack))
	}
	count("2 0 1 0 2 0")
	move(t, all[0], all[1], 0, 2) // c has not read the move
	if lack := some(); lack != nil {
		t.Errorf("after a move: %s lack it, %v", lacking(lack), lack.Err)
	}
	// A message that no shard has yet must not overtake others on the way to a new place.
	move(t, all[1], all[0], 0, 3)
	if lack := some(1); lacking(lack) != "0" {
		t.Errorf("moved to a shard that is left out: %s lack it", lacking(lack))
	}
	server.Kill()
	defer func() { // before the databases are dropped
		if err := server.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}()
	lack := some()
	if lacking(lack) != "4-5" || lack.Err == nil || !strings.Contains(lack.Err.Error(), "shard c: ") {
		t.Errorf("a shard is killed: %s lack it, %v", lacking(lack), lack)
	}
	invalid := message
	invalid.ID = ""
	var bad *events.BatchError
	if _, err := appender.AppendBestEffort(t.Context(), nil, invalid); !errors.As(err, &bad) {
		t.Errorf("an invalid event: %v", err)
	}
}
