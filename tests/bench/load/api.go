package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
)

// API is a publisher's view of a server. It is safe for concurrent use.
type API struct {
	url    string
	client *http.Client
}

// NewAPI returns a client with a limit on connections, which it keeps alive until the end of the
// run. A request waits for a free one.
func NewAPI(run *contest.Run, url string, connections int) *API {
	transport := &http.Transport{
		MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
		DisableCompression: true, // the traffic stays on one machine
	}
	run.Cleanup(func(context.Context) error { transport.CloseIdleConnections(); return nil })
	return &API{url: url, client: &http.Client{Timeout: 30 * time.Second, Transport: transport}}
}

// Publish publishes events in one request, and returns their position once they are
// durable.
func (a *API) Publish(ctx context.Context, evs ...events.Event) (position string, err error) {
	var body bytes.Buffer
	for i := range evs {
		b, err := evs[i].MarshalJSON()
		if err != nil {
			return "", err
		}
		body.Write(append(b, '\n'))
	}
	return a.publish(ctx, "application/x-ndjson", body.Bytes())
}

// PublishJSON publishes one event.
func (a *API) PublishJSON(ctx context.Context, event []byte) (position string, err error) {
	return a.publish(ctx, "application/cloudevents+json", event)
}

func (a *API) publish(ctx context.Context, contentType string, body []byte) (position string, err error) {
	header, _, err := a.do(ctx, http.MethodPost, "/v1/events", body, http.StatusAccepted,
		"Authorization", "Bearer "+rig.PublisherKey, "Content-Type", contentType)
	return header.Get("Badged-Position"), err
}

// Settle publishes events and returns once they, and those before them, count for users.
func (a *API) Settle(ctx context.Context, users []string, evs ...events.Event) error {
	position, err := a.Publish(ctx, evs...)
	if err != nil {
		return err
	}
	_, err = a.Do(ctx, http.MethodPost, "/v1/badges/query", map[string]any{"user_ids": users, "at_least": position, "timeout": "10s"}, http.StatusOK)
	return err
}

// Witnesses returns a user of each partition. What counts for it counts for the other users
// of the partition too.
func Witnesses(users []string, partitions int) []string {
	byPartition := map[int]string{}
	for _, u := range users {
		if byPartition[events.PartitionOf(u, partitions)] = u; len(byPartition) == partitions {
			break
		}
	}
	return slices.Collect(maps.Values(byPartition))
}

// BadgesAtOnce is the most users in one query.
const BadgesAtOnce = 1000

// Totals returns the total of each user.
func (a *API) Totals(ctx context.Context, users []string) (map[string]int64, error) {
	totals := make(map[string]int64, len(users))
	for some := range slices.Chunk(users, BadgesAtOnce) {
		b, err := a.Do(ctx, http.MethodPost, "/v1/badges/query", map[string]any{"user_ids": some}, http.StatusOK)
		if err != nil {
			return nil, err
		}
		var answer struct {
			Badges []struct {
				UserID string `json:"user_id"`
				Total  int64  `json:"total"`
			} `json:"badges"`
		}
		if err := json.Unmarshal(b, &answer); err != nil {
			return nil, fmt.Errorf("query badges: %w", err)
		}
		for _, b := range answer.Badges {
			totals[b.UserID] = b.Total
		}
	}
	return totals, nil
}

// Counters returns the values of metrics, in the order of names, from one scrape. Metrics
// that each of several databases has are summed up. It costs the server a millisecond.
func (a *API) Counters(ctx context.Context, names ...string) ([]float64, error) {
	page, err := a.Do(ctx, http.MethodGet, "/metrics", nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	values, found := make([]float64, len(names)), 0
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(line, " ")
		if bare, labels, _ := strings.Cut(name, "{"); strings.HasPrefix(labels, "shard=") {
			name = bare
		}
		i := slices.Index(names, name)
		if i < 0 {
			continue
		}
		var one float64
		if _, err := fmt.Sscan(value, &one); err != nil {
			return nil, fmt.Errorf("metric %s: %w", name, err)
		}
		values[i] += one
		found |= 1 << i
	}
	if found != 1<<len(names)-1 {
		return nil, fmt.Errorf("the server lacks some of the metrics %v", names)
	}
	return values, nil
}

// Do sends a request, with a value in JSON unless it is nil, and returns the answer, which must
// have the status want.
func (a *API) Do(ctx context.Context, method, path string, value any, want int) ([]byte, error) {
	key := rig.PublisherKey
	if strings.HasPrefix(path, "/admin/") {
		key = rig.AdminKey
	}
	header := []string{"Authorization", "Bearer " + key}
	var body []byte
	if value != nil {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return nil, err
		}
		header = append(header, "Content-Type", "application/json")
	}
	_, answer, err := a.do(ctx, method, path, body, want, header...)
	return answer, err
}

// do sends a request with a header of names and values.
func (a *API) do(ctx context.Context, method, path string, body []byte, want int, header ...string) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	for pair := range slices.Chunk(header, 2) {
		req.Header.Set(pair[0], pair[1])
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if res.StatusCode != want {
		return nil, nil, fmt.Errorf("%s %s: %s: %s", method, path, res.Status, answer)
	}
	return res.Header, answer, nil
}
