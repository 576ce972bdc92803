package conformance

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// backoff is the longest pause that the client should choose by itself before a reconnect. It is
// short, so that a run takes seconds.
const backoff = 100 * time.Millisecond

// The ways in which a client can send its token.
const (
	waySubprotocol = "subprotocol"
	wayHeader      = "header"
	wayHello       = "hello"
)

// The users of scenarios. The user is firstUser, until the step signsIn changes it to anotherUser.
const (
	firstUser   = "ada"
	anotherUser = "ben"
)

// token returns a text with the form of a JWT. Its content is not valid, since clients must not
// decode tokens.
func token(user, name string) string {
	part := base64.RawURLEncoding.EncodeToString
	return part([]byte(`{"alg":"HS256","kid":"k1"}`)) + "." + part([]byte(`{"sub":"`+user+`"}`)) + "." + part([]byte(name))
}

// The tokens of the user.
func (p *performance) firstToken() string { return token(p.user, "first") }
func (p *performance) freshToken() string { return token(p.user, "fresh") }

// kind says what the client did in an event.
type kind int

const (
	opened   kind = iota // the client has connected
	received             // the client has sent a frame
	ponged               // the client has sent a pong of WebSockets
	closed               // the client has ended a connection
	strayed              // the client has made a request that is not part of the protocol
	printed              // the client has printed a line
	showed               // the client has printed a line with a state
	exited               // the client's program has ended
)

// event is something that the client did.
type event struct {
	kind kind
	conn *conn
	// post is set if the event is a command over HTTP.
	post *post
	text []byte
	err  error
	at   time.Time
	// noted is true if the trace already contains the event.
	noted bool
}

func (e event) String() string {
	switch e.kind {
	case opened:
		return "the client connects"
	case received:
		return "the client sends " + string(e.text)
	case ponged:
		return "the client answers a ping of WebSockets"
	case closed:
		return "the client ends the connection: " + e.err.Error()
	case strayed:
		return "the client requests " + string(e.text)
	case printed, showed:
		return "the client prints " + string(e.text)
	default:
		if e.err != nil {
			return "the client's program ends: " + e.err.Error()
		}
		return "the client's program ends"
	}
}

// failure says why a client does not pass a scenario.
type failure struct {
	expected, happened string
	// nothing is true if the step ended with the timeout, since the client did nothing.
	nothing bool
}

func (f *failure) Error() string { return "expected " + f.expected + "; " + f.happened }

// unsupported is the error if the client says that it does not support something.
type unsupported struct{ feature string }

func (u *unsupported) Error() string { return "the client does not support " + u.feature }

// performance is the state of one run of a scenario with one client.
type performance struct {
	ctx       context.Context
	transport Transport
	timeout   time.Duration
	began     time.Time
	events    chan event
	trace     []string
	server    *server
	// start starts the client's program with the current user. client is the program that was
	// started last.
	start  func() (*program, error)
	client *program
	user   string
	// store is the folder in which the client may store its state. It is empty if the client gets
	// no folder.
	store string

	// conn is the current connection, nil if there is none. The events of other connections are
	// ignored.
	conn *conn
	// held is the state that the client must have now: the result of all frames that the server has
	// sent.
	held state
	// before has the earlier values of held. A client that was killed may have stored any of these
	// states.
	before []state
	// lost is true if the client may have lost its latest state. The next hello frame of the client
	// clears lost.
	lost bool
	// states has the states that the client may show: the state that it showed last, and each value
	// that held has had since then.
	states []state
	// shown is the state that the client showed last.
	shown state
	// commands is the number of commands that the user has given. pending is true while the client
	// may show the effect of a command that held does not include yet.
	commands int
	pending  bool
	// last is the latest frame of the client for which a step has waited.
	last frame
	// post is set if last is a command over HTTP that is not answered yet.
	post *post
	// command is the last command of the client.
	command frame
	// comeBack is the earliest time at which the client may reconnect, zero for any time.
	comeBack time.Time
	// refusedStream is true if comeBack comes from the retry_ms of a refused stream.
	refusedStream bool
	// expires is when the client's token expires.
	expires time.Time
	// mustRenew is true after the server has refused a stream with status 401, or has ended a
	// connection with close code 4202: the token has expired. From then on the client may send
	// only the fresh token.
	mustRenew bool
	// overtaken has events that arrived before the step that expects them. The next steps handle
	// them first.
	overtaken []event
	// opening is true while a step waits until the client connects. earlyEvents has the commands
	// over HTTP that have arrived meanwhile.
	opening     bool
	earlyEvents []event
	// leaving is true while a step waits for the end of the client's program. Other actions of the
	// client are then ignored.
	leaving bool
	// mute is true while the server does not answer pings.
	mute bool
}

// play runs a scenario. An error means that the scenario could not be run; a failure of the client
// is in the Outcome.
func play(ctx context.Context, cfg Config, s scenario) (Outcome, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p := &performance{
		ctx: ctx, transport: cfg.Transport, timeout: cfg.StepTimeout, began: time.Now(), events: make(chan event),
		user: firstUser, states: []state{{}}, trace: []string{},
	}
	tell := func(e event) {
		e.at = time.Now()
		select {
		case p.events <- e:
		case <-ctx.Done():
		}
	}
	if s.stores {
		folder, err := os.MkdirTemp("", "badged-conformance-")
		if err != nil {
			return Outcome{}, fmt.Errorf("make a folder for the client: %w", err)
		}
		defer os.RemoveAll(folder) //nolint:errcheck // what is left does not matter
		p.store = folder
	}
	var err error
	if p.server, err = listen(ctx, cfg.Transport, tell); err != nil {
		return Outcome{}, err
	}
	defer p.server.close()
	defer cancel() // cancel before the server is closed, since closing waits for handlers, which may be blocked in tell
	p.start = func() (*program, error) {
		return start(ctx, cfg.Command, []string{
			"BADGED_URL=" + p.server.url,
			"BADGED_TRANSPORT=" + string(cfg.Transport),
			"BADGED_STORE=" + p.store,
			"BADGED_USER=" + p.user,
			"BADGED_TOKEN=" + p.firstToken(),
			"BADGED_FRESH_TOKEN=" + p.freshToken(),
			"BADGED_AUTH=" + s.way,
			fmt.Sprintf("BADGED_BACKOFF_MS=%d", backoff.Milliseconds()),
		}, tell)
	}
	if p.client, err = p.start(); err != nil {
		return Outcome{}, err
	}
	defer func() {
		cancel()
		<-p.client.ended
	}()
	out := Outcome{Name: s.name, Story: s.story, Result: Passed}
	err = p.run(slices.Concat(s.steps, []step{ends()}))
	var (
		fails *failure
		lacks *unsupported
	)
	switch {
	case errors.As(err, &lacks):
		out.Result, out.Happened = Unsupported, lacks.feature
	case errors.As(err, &fails):
		out.Result, out.Expected, out.Happened = Failed, fails.expected, fails.happened
		out.Stderr = p.client.stderr.String()
	case err != nil:
		return Outcome{}, fmt.Errorf("scenario %s: %w", s.name, err)
	}
	out.Trace = p.trace
	return out, nil
}

func (p *performance) run(steps []step) error {
	for _, s := range steps {
		if err := s(p); err != nil {
			return err
		}
	}
	return nil
}

// note adds a line with a time to the trace.
func (p *performance) note(when time.Time, text string) {
	const limit = 2000 // bytes; longer texts are cut
	if len(text) > limit {
		text = strings.ToValidUTF8(text[:limit], "") + fmt.Sprintf("… (%d bytes)", len(text))
	}
	p.trace = append(p.trace, fmt.Sprintf("%6d ms  %s", when.Sub(p.began).Milliseconds(), text))
}

// await waits for an event for which accept returns true. Meanwhile it answers pings and checks the
// states that the client shows. Any other event, or a timeout, is a failure of the client.
func (p *performance) await(expected string, accept func(event) (bool, error)) error {
	return p.awaitFor(p.timeout, expected, accept)
}

func (p *performance) awaitFor(limit time.Duration, expected string, accept func(event) (bool, error)) error {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		var e event
		if len(p.overtaken) > 0 {
			e, p.overtaken = p.overtaken[0], p.overtaken[1:]
		} else {
			select {
			case e = <-p.events:
			case <-timer.C:
				return &failure{expected: expected, happened: fmt.Sprintf("nothing within %v", limit), nothing: true}
			case <-p.ctx.Done():
				return p.ctx.Err()
			}
		}
		handled, err := p.observe(&e, expected)
		if err != nil {
			return err
		}
		if handled {
			continue
		}
		accepted, err := accept(e)
		switch {
		case err != nil:
			return err
		case accepted:
			return nil
		case e.kind != showed && e.kind != ponged: // showed is allowed, since observe has checked the state; ponged is allowed, since a library may send pongs without a ping
			return &failure{expected: expected, happened: e.String()}
		}
	}
}

// observe is called for each event of the client, in every step. It adds the event to the trace
// and answers pings. It returns handled = true if the step must ignore the event. If the client
// has printed a state, observe checks the state and changes the event's kind from printed to
// showed.
func (p *performance) observe(e *event, expected string) (handled bool, err error) {
	if e.conn != nil && e.kind != opened && e.conn != p.conn {
		return true, nil // an event of an earlier connection
	}
	if !e.noted {
		p.note(e.at, e.String())
		e.noted = true
	}
	switch {
	case p.leaving && e.kind != exited, e.post != nil && e.post.gone() != nil:
		return true, nil
	case p.opening && e.post != nil:
		p.earlyEvents = append(p.earlyEvents, *e)
		return true, nil
	}
	switch e.kind {
	case received:
		f, err := decodeClientFrame(e.text)
		if err != nil {
			return false, &failure{expected: expected, happened: e.String()}
		}
		if e.post != nil {
			return false, nil
		}
		switch f.text("t") {
		case "ping":
			if p.mute {
				return true, nil
			}
			return true, p.send(golden("pong"))
		case "pong":
			return p.mute, nil
		}
	case printed:
		l, err := decodeLine(e.text)
		switch {
		case err != nil:
			return false, &failure{expected: expected, happened: e.String() + ": " + err.Error()}
		case l.Unsupported != "":
			return false, &unsupported{l.Unsupported}
		case l.Version != nil:
			e.kind = showed
			return false, p.show(l.state)
		}
	}
	return false, nil
}

// show checks whether the client may show a state.
func (p *performance) show(s state) error {
	p.shown = s
	for i, may := range p.states {
		if s.looksLike(may) {
			p.states = p.states[i:]
			return nil
		}
	}
	if p.pending && slices.ContainsFunc(p.states, func(may state) bool { return may.Version == s.Version }) {
		return nil // accept any state: it may include the effect of pending commands, which this package does not compute
	}
	return &failure{expected: "to show " + p.held.String(), happened: "the client shows " + s.String()}
}

// send sends a frame to the client, and updates the state that the client must have.
func (p *performance) send(f frame) error {
	p.note(time.Now(), "the server sends "+string(f.encode()))
	if err := p.conn.send(f); err != nil {
		return &failure{expected: "a connection that takes frames", happened: "writing failed: " + err.Error()}
	}
	p.holds(f)
	return nil
}

// reply answers the last command of the client.
func (p *performance) reply(f frame) error {
	if p.post == nil {
		return p.send(f)
	}
	p.note(time.Now(), "the server answers "+string(f.encode()))
	p.post.answer(f)
	p.post = nil
	return nil
}

// holds updates the state that the client must have after it has received a frame.
func (p *performance) holds(f frame) {
	if after := p.held; f.text("t") == "snapshot" || f.text("t") == "changes" {
		p.held = after.after(f)
		if !p.held.looksLike(after) {
			p.before = append(p.before, after)
			p.states = append(p.states, p.held)
		}
	}
}

// checkToken checks the tokens that the client has sent. found maps each way in which the client
// has sent a token, such as waySubprotocol, to the token. If way is not empty, the client must
// have sent its token in this way.
func (p *performance) checkToken(found map[string]string, way string) error {
	expected := "a token, in the handshake or in hello"
	if way != "" {
		expected = "a token by the way " + way
	}
	if len(found) == 0 || way != "" && found[way] == "" {
		return &failure{expected: expected, happened: fmt.Sprintf("the client gives a token by these ways: %v", slices.Sorted(maps.Keys(found)))}
	}
	for way, token := range found {
		switch {
		case token == p.freshToken(), token == p.firstToken() && !p.mustRenew:
		case token == p.firstToken():
			return &failure{expected: "a fresh token", happened: "the client gives the old one by the way " + way}
		default:
			return &failure{expected: "the token of BADGED_TOKEN", happened: fmt.Sprintf("the client gives %q by the way %s", token, way)}
		}
	}
	return nil
}
