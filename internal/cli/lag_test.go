package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestLagWithoutAProjector(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	var evs []events.Event
	for i := range 3 {
		evs = append(evs, events.Event{
			ID: fmt.Sprint(i), Source: "test", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: "lunch", Seq: int64(i + 1), UserIDs: []string{"ada"}},
		})
	}
	receipt, err := log.Append(t.Context(), evs...)
	if err != nil {
		t.Fatal(err)
	}
	behind := receipt.Partitions[0]

	type lag struct {
		Partition     int
		Head, Folded  string
		EventsBehind  int64   `json:"events_behind"`
		SecondsBehind float64 `json:"seconds_behind"`
		Owner         string
	}
	var answer struct{ Partitions []lag }
	if err := json.Unmarshal([]byte(mustDo(t, "lag", "--json", "--database-url="+url)), &answer); err != nil {
		t.Fatal(err)
	}
	lags := answer.Partitions
	if len(lags) != partitions {
		t.Fatalf("%d partitions, want %d", len(lags), partitions)
	}
	l := lags[behind]
	if want := fmt.Sprintf("%d/", receipt.TransactionID); l.Partition != behind || !strings.HasPrefix(l.Head, want) || l.Folded != "0/0" {
		t.Errorf("partition %d is at %s of %s, want 0/0 of %s…", l.Partition, l.Folded, l.Head, want)
	}
	if l.EventsBehind != 3 || l.SecondsBehind <= 0 || l.Owner != "" {
		t.Errorf("partition %d is %d events, %f s behind, owner %q; want 3, more than 0, none", behind, l.EventsBehind, l.SecondsBehind, l.Owner)
	}
	if other := lags[1-behind]; other.EventsBehind != 0 || other.SecondsBehind != 0 || other.Head != "0/0" {
		t.Errorf("a partition without events is behind: %+v", other)
	}

	table := mustDo(t, "lag", "--database-url="+url)
	if lines := strings.Split(table, "\n"); len(lines) != partitions+2 || !strings.HasPrefix(lines[0], "PARTITION  HEAD") ||
		!regexp.MustCompile(fmt.Sprintf(`^%d +%s +0/0 +3 +\d+\.\d +none$`, behind, l.Head)).MatchString(lines[behind+1]) {
		t.Errorf("it prints:\n%s", table)
	}
}
