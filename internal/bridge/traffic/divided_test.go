package traffic

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/badged/badged/events"
)

// A server without one of its databases says whose users lack events. The others get theirs,
// and the rest is sent later, for those users alone.
func TestDividedTarget(t *testing.T) {
	var user [2]string // of two partitions
	for i := 0; user[0] == "" || user[1] == ""; i++ {
		id := "u" + string(rune('a'+i))
		user[events.PartitionOf(id, 2)] = id
	}
	var got []string
	answer := ""
	target := NewDividedTarget(serve(t, newModel(), func(_ int64, w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = nil
		for line := range strings.Lines(string(body)) {
			e, err := events.Decode([]byte(strings.TrimSpace(line)))
			if err != nil {
				t.Error(err)
			}
			got = append(got, e.ID+":"+strings.Join(e.Data.UserIDs, "+"))
		}
		if answer == "" {
			w.Header().Set("Badged-Position", "1")
			w.WriteHeader(http.StatusAccepted)
			return true
		}
		status := http.StatusServiceUnavailable
		if strings.Contains(answer, `"errors"`) {
			status = http.StatusBadRequest
		}
		problem(w, status, answer)
		return true
	}))
	message := func(id string, users ...string) events.Event {
		return events.Event{ID: id, Source: "test", Type: events.MessageDelivered, Data: events.Data{ConversationID: "c", Seq: 1, UserIDs: users}}
	}
	evs := []events.Event{
		message("1", user[1]), message("2", user[0], user[1]), message("3", user[0]),
		{ID: "4", Source: "test", Type: events.RoomPosted, Data: events.Data{ConversationID: "r", Seq: 1}},
	}
	append := func(excluded []bool, want ...string) (lacks []bool, err error) {
		t.Helper()
		lack, err := target.AppendBestEffort(t.Context(), excluded, evs...)
		if !slices.Equal(got, want) {
			t.Errorf("the server got %v, want %v", got, want)
		}
		if lack == nil {
			return nil, err
		}
		return lack.Partitions, err
	}
	const away = `{"type":"urn:badged:problem","detail":"shard b is away","lacking":{"partitions":[1],"of":2}}`
	all := []string{"1:" + user[1], "2:" + user[0] + "+" + user[1], "3:" + user[0], "4:"}

	answer = `{"type":"urn:badged:problem","detail":"it starts"}`
	if lacks, err := append(nil, all...); lacks != nil || err == nil {
		t.Errorf("an answer that does not say who lacks events: %v, %v", lacks, err)
	}
	answer = away
	if lacks, err := append(nil, all...); !slices.Equal(lacks, []bool{false, true}) || err != nil {
		t.Errorf("partition 1 is away: %v, %v", lacks, err)
	}
	if p := target.PartitionOf(user[1]); p != 1 {
		t.Errorf("%s is in partition %d", user[1], p)
	}
	answer = ""
	excluded := []bool{false, true}
	if lacks, err := append(excluded, "2:"+user[0], "3:"+user[0], "4:"); lacks != nil || err != nil {
		t.Errorf("for the others: %v, %v", lacks, err)
	}
	if evs[1].Data.UserIDs[1] != user[1] {
		t.Error("the events of the caller have changed")
	}
	answer = `{"type":"about:blank","detail":"no","lacking":{"partitions":[1],"of":2}}`
	if lacks, err := append(nil, all...); lacks != nil || err == nil {
		t.Errorf("another server says who lacks events: %v, %v", lacks, err)
	}
	answer = `{"type":"urn:badged:problem","detail":"bad","errors":[{"index":1,"message":"no"}]}`
	var refused *ServerError
	if _, err := append(excluded, "2:"+user[0], "3:"+user[0], "4:"); !errors.As(err, &refused) || refused.Events[0].Index != 2 {
		t.Errorf("a refusal: %+v", err)
	}
	answer = `{"type":"urn:badged:problem","detail":"another","lacking":{"partitions":[1],"of":4}}`
	if lacks, err := append(nil, all...); lacks != nil || err == nil || !strings.Contains(err.Error(), "with 4 partitions instead of 2") {
		t.Errorf("another server: %v, %v", lacks, err)
	}
}
