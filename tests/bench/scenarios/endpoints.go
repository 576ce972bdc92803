package scenarios

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/tests/bench/contest"
	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/rig"
	"github.com/badged/badged/tests/bench/stream"
)

// catchingUp is the measure of how fast a webhook catches up after its endpoint was unavailable.
const catchingUp = "catching up, batches of %d"

func endpoints(r *rig.Rig, s contest.Scale) contest.Scenario {
	const none, works, fails = "no webhook", "one that works", "one that works, one that fails"
	l := endpointLoad{
		roomLoad: roomLoad{rooms: s.Pick(200, 4), members: s.Pick(50_000, 100), rate: float64(s.Pick(145, 100)), duration: s.Duration, partitions: defaultPartitions},
		least:    s.Pick(50, 10), limit: s.Pick(5000, 50),
	}
	var sides []contest.Side
	for hooks, name := range []string{none, works, fails} {
		sides = append(sides, contest.Side{Name: name, Says: l.String(), Run: func(run *contest.Run) []contest.Measure { return l.round(run, r, hooks) }})
	}
	return contest.Scenario{
		Name: "endpoints",
		Says: "single events over HTTP, many to rooms, with webhooks that follow them",
		Main: "CPU badged",
		Aims: []contest.Aim{
			{Measure: fmt.Sprintf(catchingUp, 100), Of: works, AtLeast: 10_000},
			{Measure: "WAL", Of: fails, Over: none, AtMost: 1.3},
			{Measure: "CPU badged", Of: fails, Over: none, AtMost: 1.25},
			{Measure: "CPU Postgres", Of: fails, Over: none, AtMost: 1.25},
		},
		Sides: sides,
	}
}

// endpointLoad is a load with a rate of events. A tenth are messages to rooms, whose sizes range from
// least to most users. One in twenty is a message to one busy user. Of the others two thirds are messages
// to up to three users, and the rest are reads.
type endpointLoad struct {
	roomLoad
	least, limit int
}

func (l endpointLoad) String() string {
	return fmt.Sprintf("%.0f events/s for %s, %d users, %d rooms of %d to %d", l.rate, l.duration, l.members, l.rooms, l.least, l.limit)
}

// event returns event i, which may be negative.
func (l endpointLoad) event(i int) events.Event {
	random := rand.New(rand.NewPCG(uint64(i), 5))                                   //nolint:gosec // the same events every time
	user := func() string { return stream.UserID(random.Int32N(int32(l.members))) } //nolint:gosec // at most 50,000
	e := l.message(i, events.MessageDelivered)
	e.Data.ConversationID, e.Data.Seq = "direct", int64(i)+1_000_000
	switch n := random.IntN(20); {
	case n < 2:
		e.Type, e.Data.ConversationID = events.RoomPosted, l.room(random.IntN(l.rooms))
	case n == 2:
		e.Data.UserIDs = []string{stream.UserID(0)}
	default:
		for range 1 + random.IntN(3) {
			e.Data.UserIDs = append(e.Data.UserIDs, user())
		}
		slices.Sort(e.Data.UserIDs)
		e.Data.UserIDs = slices.Compact(e.Data.UserIDs)
		if n > 14 {
			e.Type, e.Data.UpToSeq, e.Data.Seq, e.Data.SenderID = events.ConversationRead, e.Data.Seq, 0, ""
		}
	}
	return e
}

// joins returns the events by which the rooms get their members. Their sizes are even on a
// logarithmic scale.
func (l endpointLoad) joins() (all []events.Event) {
	for room := range l.rooms {
		size := float64(l.least) * math.Pow(float64(l.limit)/float64(l.least), float64(room)/float64(max(1, l.rooms-1)))
		var users []string
		for i := range int32(size) {
			users = append(users, stream.UserID((int32(room)*7919+i)%int32(l.members))) //nolint:gosec // at most 50,000
		}
		all = append(all, event(fmt.Sprint("join-", room), events.RoomJoined, events.Data{ConversationID: l.room(room), UserIDs: users}))
	}
	return all
}

// round runs the load with 0, 1 or 2 webhooks, of which the second fails. Then the first catches up with
// a message to each user.
func (l endpointLoad) round(run *contest.Run, r *rig.Rig, hooks int) []contest.Measure {
	ctx, to := run.Context(), newEndpoint(run)
	d := r.Deploy(run, rig.Deploy{Args: []string{"--webhooks-allow-private"}, Env: []string{"SSL_CERT_FILE=" + to.caFile}})
	a := load.NewAPI(run, d.API.URL, roomSenders)
	witnesses := load.Witnesses(l.users(), l.partitions)
	for _, e := range l.joins() {
		contest.Check(a.Settle(ctx, witnesses, e))
	}
	put := func(name, path, state string, batch, status int) {
		contest.Must(a.Do(ctx, http.MethodPut, "/admin/v1/webhooks/"+name, map[string]any{
			"url": to.server.URL + path, "events": []string{"badge.changed"}, "secrets": []string{rig.WebhookSecret}, "batch": batch, "state": state,
		}, status))
	}
	for i, path := range []string{"", failing}[:hooks] {
		put(fmt.Sprint("hook", i), path, "active", 100, http.StatusCreated)
	}
	send := func(before int) func(context.Context, int) error {
		return func(ctx context.Context, i int) error {
			_, err := a.Publish(ctx, l.event(i-before))
			return err
		}
	}
	// Warm up: at first, sessions of Postgres plan each statement again, which takes longer
	// than running it.
	warm := l.roomLoad
	warm.duration /= 2
	warm.measure(run, r, send(500_000))
	to.take()
	measures := l.measure(run, r, send(0))
	if hooks == 0 {
		return measures
	}
	measures = append(measures, contest.Of("told", "users/event", float64(len(to.take()))/float64(l.count())))
	for _, batch := range []int{100, 1} {
		put("hook0", "", "paused", batch, http.StatusOK)
		to.take()
		for some := range slices.Chunk(l.users(), 500) {
			all := event(fmt.Sprint("all-", batch, some[0]), events.MessageDelivered, events.Data{ConversationID: "all", Seq: int64(batch), UserIDs: some, SenderID: "somebody"})
			contest.Check(a.Settle(ctx, witnesses, all))
		}
		began, told := time.Now(), map[string]struct{}{}
		put("hook0", "", "active", batch, http.StatusOK)
		for len(told) < l.members {
			contest.Check(wait.For(ctx, 2*time.Millisecond))
			for _, user := range to.take() {
				told[user] = struct{}{}
			}
		}
		measures = append(measures, contest.Of(fmt.Sprintf(catchingUp, batch), "users/s", float64(l.members)/time.Since(began).Seconds()))
	}
	return measures
}

// endpoint receives webhooks over TLS, and verifies each call. It answers calls to the path failing with
// an error.
type endpoint struct {
	server   *httptest.Server
	caFile   string
	verifier *standardwebhooks.Webhook

	mu    sync.Mutex
	told  []string // users of calls since the last take
	wrong error
}

const failing = "/fails"

// newEndpoint starts an endpoint until the end of the run.
func newEndpoint(run *contest.Run) *endpoint {
	e := &endpoint{verifier: contest.Must(standardwebhooks.NewWebhook(rig.WebhookSecret))}
	file := contest.Must(os.CreateTemp("", "endpoint-*.pem"))
	e.caFile = file.Name()
	e.server = httptest.NewUnstartedServer(e)
	e.server.EnableHTTP2 = true
	e.server.StartTLS()
	run.Cleanup(func(context.Context) error {
		e.server.CloseClientConnections()
		e.server.Close()
		return os.Remove(e.caFile)
	})
	contest.Check(pem.Encode(file, &pem.Block{Type: "CERTIFICATE", Bytes: e.server.Certificate().Raw}))
	contest.Check(file.Close())
	return e
}

// ServeHTTP implements http.Handler.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodOptions { // the handshake
		w.Header().Set("WebHook-Allowed-Origin", r.Header.Get("WebHook-Request-Origin"))
		return
	}
	if r.URL.Path == failing {
		w.WriteHeader(http.StatusInternalServerError)
		return
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the server has ended
	}
	var all []struct{ Type, Subject string }
	if err = e.verifier.Verify(body, r.Header); err == nil {
		if body[0] != '[' { // not a batch
			body = slices.Concat([]byte("["), body, []byte("]"))
		}
		err = json.Unmarshal(body, &all)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, event := range all {
		if event.Type != "badge.changed" && event.Type != "room.changed" {
			err = fmt.Errorf("an event of the type %q", event.Type)
		}
		e.told = append(e.told, event.Subject)
	}
	if err != nil {
		e.wrong = fmt.Errorf("the endpoint was called: %w: %w", err, contest.ErrWrong)
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// take returns the users of the calls since the last take. It ends the run if the server has made an
// invalid call.
func (e *endpoint) take() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	contest.Check(e.wrong)
	told := e.told
	e.told = nil
	return told
}
