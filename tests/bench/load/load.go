// Package load publishes messages at a rate, and times their arrival at clients that
// are connected to badged or to centrifugo.
package load

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/rig"
)

// Load is the load of a latency measurement.
type Load struct {
	Clients       int // connected, one user each
	Conversations int // of each user, in turn
	Rate          float64
	WarmUp        time.Duration // not counted
	Measured      time.Duration
	// Rooms makes each conversation a room, whose messages name no users.
	Rooms bool
}

// Connections is how many the publisher has.
const Connections = 64

func (l Load) String() string {
	return fmt.Sprintf("%.0f events/s on %d connections for %s after %s of warm-up, to %d clients",
		l.Rate, Connections, l.Measured, l.WarmUp, l.Clients)
}

// Message is one event of a schedule: message seq of a conversation with a single
// recipient.
type Message struct {
	// Due is the scheduled time, from the start.
	Due          time.Duration
	Client       int
	conversation string
	seq          int64
	event        []byte // CloudEvents JSON
}

// Schedule returns the events in the order of their times, and the same events every time. The times
// are a Poisson process, as of many independent senders, so several may coincide. The conversations
// take turns, so messages of one conversation are seconds apart.
func (l Load) Schedule() ([]Message, error) {
	random := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // the same schedule every time
	turns := random.Perm(l.Clients * l.Conversations)
	var due time.Duration
	var messages []Message
	for i := 0; ; i++ {
		due += time.Duration(random.ExpFloat64() / l.Rate * float64(time.Second))
		if due >= l.WarmUp+l.Measured {
			return messages, nil
		}
		turn := turns[i%len(turns)]
		m := Message{
			Due: due, Client: turn / l.Conversations,
			conversation: ConversationOf(turn), seq: int64(i/len(turns)) + 1,
		}
		e := events.Event{
			ID: fmt.Sprintf("%s/%d", m.conversation, m.seq), Source: "bench/latency", Type: events.MessageDelivered,
			Data: events.Data{ConversationID: m.conversation, Seq: m.seq, UserIDs: []string{UserOf(m.Client)}, SenderID: "sender"},
		}
		if l.Rooms {
			e.Type, e.Data.UserIDs = events.RoomPosted, nil
		}
		var err error
		if m.event, err = e.MarshalJSON(); err != nil {
			return nil, err
		}
		messages = append(messages, m)
	}
}

// ConversationOf returns conversation i of all clients, in their order.
func ConversationOf(i int) string { return fmt.Sprintf("conversation-%06d", i) }

// UserOf returns the user of a client.
func UserOf(client int) string { return fmt.Sprintf("user-%06d", client) }

// The measures that compare the sides.
const (
	LatencyMedian = "latency p50"
	LatencyTail   = "latency p99"
)

// patience is how long after the last accepted message arrivals may come; later arrivals count as lost.
// It is shorter than the interval of the gateway's reconciliation, which would hide a lost update.
const patience = 10 * time.Second

// Observe publishes messages when they are due, without waiting for earlier messages, and returns
// the latencies of those that were due after the warm-up. It fails if a message cannot be published
// or does not arrive.
func Observe(
	ctx context.Context, publish func(context.Context, Message) error, clients []*Client, messages []Message, warmUp time.Duration,
) ([]contest.Measure, error) {
	for _, m := range messages {
		c := clients[m.Client]
		c.sent[m.conversation] = append(c.sent[m.conversation], m.Due)
	}
	listenCtx, giveUp := context.WithCancel(ctx)
	defer giveUp()
	var listening errgroup.Group
	for _, c := range clients {
		listening.Go(func() error {
			err := c.listen(listenCtx)
			if listenCtx.Err() != nil {
				return nil // latencies notices what is missing
			}
			return err
		})
	}
	start := time.Now()
	due := func(i int) time.Duration { return messages[i].Due }
	err := Paced(ctx, len(messages), -1, due, func(ctx context.Context, i int) error { return publish(ctx, messages[i]) })
	if err != nil {
		giveUp()
	}
	timer := time.AfterFunc(patience, giveUp)
	defer timer.Stop()
	if err := errors.Join(err, listening.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	var arrivals []arrival
	for _, c := range clients {
		arrivals = append(arrivals, c.arrivals...)
	}
	return latencies(start, len(messages), arrivals, warmUp)
}

// latencies returns the latencies of the messages that were due after the warm-up. It fails if not
// all that were sent have arrived.
func latencies(start time.Time, sent int, arrivals []arrival, warmUp time.Duration) ([]contest.Measure, error) {
	if lost := sent - len(arrivals); lost != 0 {
		return nil, fmt.Errorf("%d of %d messages did not arrive within %s: %w", lost, sent, patience, contest.ErrWrong)
	}
	var sorted []float64
	for _, a := range arrivals {
		if a.due >= warmUp {
			sorted = append(sorted, contest.Milliseconds(a.at.Sub(start)-a.due))
		}
	}
	slices.Sort(sorted)
	return []contest.Measure{
		contest.Of(LatencyMedian, "ms", contest.Percentile(sorted, 50)),
		contest.Of(LatencyTail, "ms", contest.Percentile(sorted, 99)),
		contest.Of("latency max", "ms", contest.Percentile(sorted, 100)),
	}, nil
}

// Paced calls send for each of n messages when it is due, a time from now, and returns once all
// calls have returned. If the limit of concurrent calls is not negative, a call waits for earlier
// ones. The first failure ends it.
func Paced(ctx context.Context, n, limit int, due func(i int) time.Duration, send func(ctx context.Context, i int) error) error {
	start := time.Now()
	sending, within := errgroup.WithContext(ctx)
	sending.SetLimit(limit)
	for i := range n {
		if err := wait.For(within, time.Until(start.Add(due(i)))); err != nil || within.Err() != nil { // both may have come
			break
		}
		sending.Go(func() error { return send(within, i) })
	}
	return cmp.Or(sending.Wait(), ctx.Err())
}

// API is a publisher's view of a server. It is safe for concurrent use.
type API struct {
	url string
	// authorization is a header, of all requests but those to the admin API of badged.
	authorization string
	client        *http.Client
}

// NewAPI returns a client with a limit on connections, which it keeps alive until the end of the
// run. A request waits for a free one.
func NewAPI(run *contest.Run, url string, connections int) *API {
	transport := &http.Transport{
		MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, IdleConnTimeout: time.Minute,
		DisableCompression: true, // the traffic stays on one machine
	}
	run.Cleanup(func(context.Context) error { transport.CloseIdleConnections(); return nil })
	return &API{url: url, authorization: "Bearer " + rig.PublisherKey, client: &http.Client{Timeout: 30 * time.Second, Transport: transport}}
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
	header, _, err := a.send(ctx, http.MethodPost, "/v1/events", "application/x-ndjson", body.Bytes(), http.StatusAccepted)
	return header.Get("Badged-Position"), err
}

// Deliver publishes one message in one request.
func (a *API) Deliver(ctx context.Context, m Message) error {
	_, _, err := a.send(ctx, http.MethodPost, "/v1/events", "application/cloudevents+json", m.event, http.StatusAccepted)
	return err
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

// BadgesAtOnce is the maximum number of users in one query.
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
	all, values := map[string]float64{}, make([]float64, len(names))
	for line := range strings.Lines(string(page)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if bare, labels, _ := strings.Cut(name, "{"); strings.HasPrefix(labels, "shard=") {
			name = bare
		}
		if n, err := strconv.ParseFloat(value, 64); err == nil { // else it is a comment
			all[name] += n
		}
	}
	for i, name := range names {
		var ok bool
		if values[i], ok = all[name]; !ok {
			return nil, fmt.Errorf("the server lacks the metric %s", name)
		}
	}
	return values, nil
}

// Do sends a request, with a value in JSON unless it is nil, and returns the answer, which must
// have the status want.
func (a *API) Do(ctx context.Context, method, path string, value any, want int) ([]byte, error) {
	var body []byte
	if value != nil {
		var err error
		if body, err = json.Marshal(value); err != nil {
			return nil, err
		}
	}
	_, answer, err := a.send(ctx, method, path, "application/json", body, want)
	return answer, err
}

func (a *API) send(ctx context.Context, method, path, contentType string, body []byte, want int) (http.Header, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, a.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	req.Header.Set("Authorization", a.authorization)
	if strings.HasPrefix(path, "/admin/") {
		req.Header.Set("Authorization", "Bearer "+rig.AdminKey)
	}
	if len(body) > 0 {
		req.Header.Set("Content-Type", contentType)
	}
	res, err := a.client.Do(req)
	if err != nil {
		return nil, nil, err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != want {
		err = fmt.Errorf("%s: %s", res.Status, answer)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("%s %s: %w", method, path, err)
	}
	return res.Header, answer, nil
}
