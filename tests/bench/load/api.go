package load

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/badged/badged/tests/bench/rig"
)

// API is a publisher's view of a server. It is safe for concurrent use.
type API struct {
	url    string
	Key    string
	client *http.Client
}

// NewAPI returns a client with a limit on connections, which it keeps alive. A
// request waits for a free one.
func NewAPI(url string, connections int) *API {
	return &API{url: url, Key: rig.PublisherKey, client: newHTTPClient(connections)}
}

func newHTTPClient(connections int) *http.Client {
	return &http.Client{
		Timeout: 30 * time.Second,
		Transport: &http.Transport{
			MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
			DisableCompression: true, // the traffic stays on one machine
		},
	}
}

// Close closes idle connections.
func (a *API) Close() { a.client.CloseIdleConnections() }

// Publish publishes one event and returns once it is durable.
func (a *API) Publish(ctx context.Context, event []byte) error {
	_, err := a.Do(ctx, http.MethodPost, "/v1/events", "application/cloudevents+json", event, http.StatusAccepted)
	return err
}

// Deliver publishes a message.
func (a *API) Deliver(ctx context.Context, m Message) error { return a.Publish(ctx, m.event) }

// BadgesAtOnce is the most users in one query.
const BadgesAtOnce = 1000

// Totals returns the total of each user.
func (a *API) Totals(ctx context.Context, users []string) (map[string]int64, error) {
	totals := make(map[string]int64, len(users))
	for some := range slices.Chunk(users, BadgesAtOnce) {
		query, err := json.Marshal(map[string][]string{"user_ids": some})
		if err != nil {
			return nil, fmt.Errorf("query badges: %w", err)
		}
		b, err := a.Do(ctx, http.MethodPost, "/v1/badges/query", "application/json", query, http.StatusOK)
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

// Counter returns a metric without labels.
func (a *API) Counter(ctx context.Context, name string) (float64, error) {
	values, err := a.Counters(ctx, name)
	if err != nil {
		return 0, err
	}
	return values[0], nil
}

// Counters returns the values of metrics without labels, in the order of names,
// from one scrape. It costs the server a millisecond.
func (a *API) Counters(ctx context.Context, names ...string) ([]float64, error) {
	page, err := a.Do(ctx, http.MethodGet, "/metrics", "", nil, http.StatusOK)
	if err != nil {
		return nil, err
	}
	values, found := make([]float64, len(names)), make([]bool, len(names))
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(line, " ")
		if bare, labels, _ := strings.Cut(name, "{"); strings.HasPrefix(labels, "shard=") { // one of several
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
		found[i] = true
	}
	if slices.Contains(found, false) {
		return nil, fmt.Errorf("the server lacks some of the metrics %v", names)
	}
	return values, nil
}

// Do sends a request and returns the answer, which must have the status want.
func (a *API) Do(ctx context.Context, method, path, contentType string, body []byte, want int) ([]byte, error) {
	_, answer, err := a.Call(ctx, method, path, contentType, body, want)
	return answer, err
}

// Call is Do that returns the header too.
func (a *API) Call(ctx context.Context, method, path, contentType string, body []byte, want int) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+a.Key)
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
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
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, &StatusError{res.StatusCode, res.Header.Get("Retry-After"), string(answer)})
	}
	return res.Header, answer, nil
}

// StatusError is an answer with an unexpected status.
type StatusError struct {
	Code       int
	RetryAfter string // header, "" if absent
	answer     string
}

// Error implements error.
func (e *StatusError) Error() string {
	return fmt.Sprintf("%d %s: %s", e.Code, http.StatusText(e.Code), e.answer)
}
