// Package demo is the chat backend of `badged demo`. It has simulated people, and a page that shows
// their badges and lets the user act for them.
//
// It uses badged as any other backend does: it publishes events in the transactions that store its
// messages. Its page gets badges from the gateway.
//
// It does not know the internals of badged.
package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/web"
)

// Config configures the demo. All fields are required.
type Config struct {
	Pool   *pgxpool.Pool
	Log    *events.Log
	Tokens *auth.Tokens
	// Wake notifies the projector that partitions have new events.
	Wake func(partitions []int)
	// Bus is the bus of the server. The page can cut it.
	Bus *Bus
	// Explainer explains the effects of events.
	Explainer Explainer
	// PushEndpoint is the URL at which the demo's push service accepts pushes: see the function
	// [PushEndpoint]. PhoneSecret is the secret from which the phones' keys are derived.
	PushEndpoint, PhoneSecret string
	// Page has index.html and its assets.
	Page   fs.FS
	Logger *slog.Logger
}

// Demo is the chat backend and its page. It is an http.Handler.
type Demo struct {
	cfg   Config
	store *store
	feed  *feed
	// running is true while the simulation may write messages.
	running atomic.Bool
	long    longTransaction
	crowd   *crowd
	meter   *meter
	phones  *phones
	mux     *http.ServeMux
}

const (
	tokenTTL  = time.Hour
	tailPause = 100 * time.Millisecond
	// talkPause is the minimum pause between two messages of the simulation; the maximum is twice
	// as long.
	talkPause = 900 * time.Millisecond
	// briskStart is how many messages the simulation writes at the start with only a quarter of the
	// usual pause between them, so that the page soon has messages to show.
	briskStart = 12
)

// New returns a demo. It creates the demo's tables and its room if they do not exist.
func New(ctx context.Context, cfg Config) (*Demo, error) {
	d := &Demo{
		cfg:   cfg,
		store: &store{pool: cfg.Pool, log: cfg.Log, wake: cfg.Wake},
		feed:  newFeed(),
		long:  longTransaction{pool: cfg.Pool},
		mux:   http.NewServeMux(),
	}
	d.running.Store(true)
	if err := d.store.create(ctx); err != nil {
		return nil, err
	}
	guests, err := d.store.open(ctx)
	if err != nil {
		return nil, err
	}
	if d.phones, err = newPhones(cfg.PushEndpoint, cfg.PhoneSecret, d.feed.phone); err != nil {
		return nil, err
	}
	d.meter = newMeter(d.store, cfg.Pool, cfg.Log)
	d.crowd = &crowd{
		store: d.store, isFolded: d.meter.isFolded, show: d.feed.crowd, logger: cfg.Logger, resizeRequested: make(chan struct{}, 1),
		state: crowdState{Members: guests + hosts, Target: guests + hosts},
	}
	d.meter.crowd = d.crowd
	d.mux.HandleFunc("GET /demo/users", d.getUsers)
	d.mux.HandleFunc("GET /demo/feed", d.getFeed)
	d.mux.HandleFunc("POST /demo/messages", action(d, "the message cannot be read", d.postMessage))
	d.mux.HandleFunc("POST /demo/recalls", action(d, "the recall cannot be read", d.postRecall))
	d.mux.HandleFunc("POST /demo/levels", action(d, "the level cannot be read", d.postLevel))
	d.mux.HandleFunc("GET /demo/room", d.shows(func() any { return d.crowd.now() }))
	d.mux.HandleFunc("POST /demo/room", action(d, `want {"members": 1000}`, d.postRoom))
	d.mux.HandleFunc("POST /demo/room/messages", action(d, `want {"conversation_id": "town-hall", "messages": 1}`, d.postRoomMessages))
	d.mux.HandleFunc("GET /demo/phones", d.getPhones)
	d.mux.HandleFunc("POST /demo/phones", action(d, wantPhone, d.postPhone))
	d.mux.HandleFunc("POST /demo/push/{user}", d.postPush)
	d.mux.HandleFunc("GET /demo/changes", d.getChanges)
	d.mux.HandleFunc("GET /demo/bus", d.shows(func() any { return d.linkState() }))
	d.mux.HandleFunc("POST /demo/bus", action(d, `want {"cut_ms": 10000}`, d.postBus))
	d.mux.HandleFunc("GET /demo/transaction", d.shows(func() any {
		state, _ := d.long.state()
		return state
	}))
	d.mux.HandleFunc("POST /demo/transaction", action(d, `want {"open_ms": 10000}`, d.postTransaction))
	d.mux.HandleFunc("GET /demo/simulation", d.shows(func() any { return simulation{d.running.Load()} }))
	d.mux.HandleFunc("POST /demo/simulation", action(d, `want {"running": true} or {"running": false}`, d.postSimulation))
	d.mux.Handle("GET /", web.Handler(cfg.Page))
	return d, nil
}

// ServeHTTP implements http.Handler.
func (d *Demo) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.mux.ServeHTTP(w, r) }

// Run writes messages of the simulation while a page is open, and sends new entries of the log to
// the pages, until ctx is done.
func (d *Demo) Run(ctx context.Context) error {
	defer close(d.feed.closed)
	defer func() {
		if err := d.long.stop(context.WithoutCancel(ctx)); err != nil {
			d.cfg.Logger.WarnContext(ctx, "the transaction of the page did not end cleanly", "error", err)
		}
	}()
	var resizing sync.WaitGroup
	defer resizing.Wait()
	resizing.Go(func() { d.crowd.run(ctx) })
	look := time.NewTicker(tailPause)
	defer look.Stop()
	talk := time.NewTimer(talkPause)
	defer talk.Stop()
	said := 0
	end := &tail{pool: d.cfg.Pool, partitions: d.cfg.Log.Partitions()}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-look.C:
			entries, err := end.next(ctx)
			if err != nil && ctx.Err() == nil {
				d.cfg.Logger.WarnContext(ctx, "cannot read the log for the page", "error", err)
			}
			for _, e := range entries {
				d.feed.entry(e)
			}
			d.endDue(ctx)
		case <-talk.C:
			if d.running.Load() && d.feed.watched() {
				if err := d.talk(ctx); err != nil && ctx.Err() == nil {
					d.cfg.Logger.WarnContext(ctx, "the simulation could not send", "error", err)
				}
				said++
			}
			pause := talkPause + rand.N(talkPause) //nolint:gosec // chatter
			if said < briskStart {
				pause /= 4
			}
			talk.Reset(pause)
		}
	}
}

// talk sends a random message of a random conversation.
func (d *Demo) talk(ctx context.Context) error {
	all := conversations()
	weight := 0
	for _, c := range all {
		weight += c.weight
	}
	pick := rand.N(weight) //nolint:gosec // chatter
	i := slices.IndexFunc(all, func(c conversation) bool { pick -= c.weight; return pick < 0 })
	c := all[i]
	text := c.lines[rand.N(len(c.lines))] //nolint:gosec // chatter
	sender := bot
	if c.Kind != "feed" {
		// People who are mentioned in the text cannot be its sender.
		candidates := slices.DeleteFunc(slices.Clone(c.Members), func(id string) bool {
			return slices.Contains(mentionedIn(text, c.Members), id)
		})
		sender = candidates[rand.N(len(candidates))] //nolint:gosec // chatter
	}
	m, err := d.store.send(ctx, c, sender, text)
	if err != nil {
		return err
	}
	d.feed.message(m)
	return nil
}

func (d *Demo) getUsers(w http.ResponseWriter, r *http.Request) {
	type withToken struct {
		person
		Token string `json:"token"`
	}
	answer := struct {
		Users         []withToken    `json:"users"`
		Conversations []conversation `json:"conversations"`
	}{Conversations: conversations()}
	for _, p := range people() {
		token, err := d.cfg.Tokens.Sign(p.UserID, tokenTTL, time.Now())
		if err != nil {
			d.fail(w, r, err)
			return
		}
		answer.Users = append(answer.Users, withToken{p, token})
	}
	d.answer(w, http.StatusOK, answer)
}

func (d *Demo) getFeed(w http.ResponseWriter, r *http.Request) {
	// Register the page before reading the messages, so that it misses no message. The page may get
	// a message twice, and ignores it the second time.
	page, log := d.feed.open()
	defer d.feed.leave(page)
	recent, err := d.store.recent(r.Context())
	if err != nil {
		d.fail(w, r, err)
		return
	}
	d.feed.serve(w, r, page, recent, log)
}

func (d *Demo) answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // an error means that the page was closed
}

// shows returns a handler that answers with the result of `state`.
func (d *Demo) shows(state func() any) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { d.answer(w, http.StatusOK, state()) }
}

// refusal is an error whose text the page shows.
type refusal string

func (r refusal) Error() string { return string(r) }

// action returns an HTTP handler for requests with a body of JSON. The handler passes the decoded
// body to `do`, and sends the result of `do` as the answer. If the body cannot be decoded, the
// answer is the error `want`.
func action[In any](d *Demo, want refusal, do func(ctx context.Context, body In) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var body In
		if json.NewDecoder(http.MaxBytesReader(w, r.Body, 4096)).Decode(&body) != nil {
			d.fail(w, r, want)
			return
		}
		answer, err := do(r.Context(), body)
		if err != nil {
			d.fail(w, r, err)
			return
		}
		d.answer(w, http.StatusOK, answer)
	}
}

func (d *Demo) fail(w http.ResponseWriter, r *http.Request, err error) {
	if refused, ok := errors.AsType[refusal](err); ok {
		d.answer(w, http.StatusBadRequest, map[string]string{"detail": refused.Error()})
		return
	}
	if errors.Is(err, context.Canceled) {
		return
	}
	d.cfg.Logger.WarnContext(r.Context(), "demo request failed", "path", r.URL.Path, "error", err)
	d.answer(w, http.StatusServiceUnavailable, map[string]string{"detail": "the demo's database does not answer; try again"})
}
