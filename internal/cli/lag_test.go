package cli

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

func TestLagWithoutAProjector(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	log, err := events.Open(t.Context(), poolOf(t, url))
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

	var answer struct {
		Partitions []struct {
			Head         string
			EventsBehind int64 `json:"events_behind"`
		}
	}
	if err := json.Unmarshal([]byte(mustDo(t, "lag", "--json", "--database-url="+url)), &answer); err != nil {
		t.Fatal(err)
	}
	lags := answer.Partitions
	if len(lags) != partitions || lags[behind].EventsBehind != 3 || lags[1-behind].EventsBehind != 0 {
		t.Errorf("with 3 events in partition %d the lags are %+v", behind, lags)
	}

	table := mustDo(t, "lag", "--database-url="+url)
	if lines := strings.Split(table, "\n"); len(lines) != partitions+2 || !strings.HasPrefix(lines[0], "PARTITION  HEAD") ||
		!regexp.MustCompile(fmt.Sprintf(`^%d +%s +0/0 +3 +\d+\.\d +none$`, behind, lags[behind].Head)).MatchString(lines[behind+1]) {
		t.Errorf("it prints:\n%s", table)
	}
}
