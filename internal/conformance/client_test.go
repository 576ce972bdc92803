package conformance

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/coder/websocket"
	"github.com/google/uuid"
)

// reference is a small client with coder/websocket and net/http. It passes all scenarios unless
// bug names an error that it makes on purpose. It runs in its own process.
type reference struct {
	bug string
	// streams is true if it uses server-sent events.
	streams bool
	// folder is where the client stores its state; empty if it stores none.
	folder string

	token string
	pause time.Duration
	out   *json.Encoder

	epoch         string
	version       int64
	total         json.Number
	conversations map[string]frame
	categories    frame
	levels        frame
	unread        any
	ends          map[string]any // the first level_until of each conversation

	// queue has the unanswered commands in order. numbers has the number of each by its id.
	queue    []frame
	issued   []frame // all commands, with and without an answer
	numbers  map[string]any
	sent     bool
	again    <-chan time.Time
	commands chan frame
}

// serveReference runs the client until its standard input ends.
func serveReference(bug string) {
	backoffMS, err := strconv.Atoi(os.Getenv("BADGED_BACKOFF_MS"))
	if err != nil {
		panic(err)
	}
	c := &reference{
		bug: bug, token: os.Getenv("BADGED_TOKEN"), pause: time.Duration(backoffMS) * time.Millisecond,
		out: json.NewEncoder(os.Stdout), numbers: map[string]any{}, ends: map[string]any{}, commands: make(chan frame),
		streams: os.Getenv("BADGED_TRANSPORT") == string(ServerSentEvents), folder: os.Getenv("BADGED_STORE"),
	}
	c.load()
	if bug == "knows no hello tokens" && os.Getenv("BADGED_AUTH") == wayHello {
		c.print(frame{"unsupported": "tokens in hello"})
	}
	go func() {
		defer close(c.commands)
		for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
			command, err := decodeFrame(lines.Bytes())
			if err != nil {
				panic(err)
			}
			c.commands <- command
		}
	}()
	for {
		code, pause := c.connect()
		if code >= 4001 && code <= 4004 && bug != "reconnects after refusals" {
			c.print(frame{"refused": code})
			for range c.commands { // until the end
			}
			os.Exit(0)
		}
		if code == 4202 {
			c.renew()
		}
		if bug == "ignores reconnect_ms" {
			pause = 0
		}
		c.sent, c.again = false, nil
		if bug == "forgets commands" {
			c.queue = nil
		}
		for due := time.After(pause + rand.N(c.pause)); due != nil; {
			select {
			case <-due:
				due = nil
			case command, ok := <-c.commands:
				c.take(command, ok)
			}
		}
	}
}

func (c *reference) print(f frame) {
	if err := c.out.Encode(f); err != nil {
		panic(err)
	}
}

func (c *reference) renew() {
	if c.bug != "keeps its token" {
		c.token = os.Getenv("BADGED_FRESH_TOKEN")
	}
}

// take queues a command of the user.
func (c *reference) take(command frame, ok bool) {
	if !ok {
		if c.bug == "stores when it ends" {
			c.bug = ""
			c.store()
		}
		os.Exit(0)
	}
	if conversation, ok := command["conversation_id"].(string); ok && !canBeID(conversation) && c.bug != "sends any command" {
		c.print(frame{"failed": command["n"], "code": "invalid"})
		return
	}
	category, hasCategory := command["category"].(string)
	level, hasLevel := command["level"].(string)
	if (hasCategory && !canBeCategory(category) || hasLevel && level != "default" && level != "none") && c.bug != "sends any command" {
		c.print(frame{"failed": command["n"], "code": "invalid"})
		return
	}
	id := uuid.NewString()
	f := frame{"t": command["do"], "id": id}
	if hasCategory && c.bug != "forgets categories" {
		f["category"] = category
	}
	if hasLevel {
		f["level"] = level
	}
	c.numbers[id] = command["n"]
	if conversation := command["conversation_id"]; conversation != nil {
		f["conversation_id"] = conversation
	}
	if seq := command.text("up_to_seq"); seq != "" {
		f["up_to_seq"] = json.Number(seq)
		if rounded, err := strconv.ParseFloat(seq, 64); err == nil && c.bug == "rounds seqs" {
			f["up_to_seq"] = rounded
		}
	}
	if c.bug == "sends fields of its own" {
		f["sent_by"] = "reference"
	}
	c.queue = append(c.queue, f)
	c.issued = append(c.issued, f)
	c.store()
}

// canBeID reports whether an id is valid: the server refuses a command with an invalid id.
func canBeID(id string) bool {
	return id != "" && len(id) <= 128 && !strings.ContainsFunc(id, unicode.IsControl)
}

// canBeCategory reports whether a text is the path of a category.
func canBeCategory(path string) bool {
	parts := strings.Split(path, "/")
	return canBeID(path) && len(parts) <= 8 && !slices.Contains(parts, "")
}

// connect runs one connection and returns how it ended.
func (c *reference) connect() (code int, pause time.Duration) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if c.streams {
		stream, code, pause := c.openStream(ctx)
		if stream == nil {
			return code, pause
		}
		defer stream.Close()
		frames, end := make(chan frame), make(chan int, 1)
		go c.readStream(ctx, stream, frames, end)
		return c.stay(frames, end, func(f frame) { go c.post(ctx, f, c.token, frames) })
	}
	options := &websocket.DialOptions{Subprotocols: []string{"badge.v1"}}
	hello := frame{"t": "hello"}
	switch os.Getenv("BADGED_AUTH") {
	case wayHello:
		hello["token"] = c.token
	case waySubprotocol:
		options.Subprotocols = append(options.Subprotocols, "bearer."+c.token)
	default:
		options.HTTPHeader = map[string][]string{"Authorization": {"Bearer " + c.token}}
	}
	ws, _, err := websocket.Dial(ctx, os.Getenv("BADGED_URL")+"/v1/ws", options)
	if err != nil {
		return 0, 0
	}
	defer ws.CloseNow() //nolint:errcheck // it has ended
	if c.bug != "reads small frames only" {
		ws.SetReadLimit(1 << 20)
	}
	send := func(f frame) {
		_ = ws.Write(ctx, websocket.MessageText, f.encode()) // if it fails, reading does too
	}
	if c.epoch != "" && c.bug != "does not resume" {
		hello["epoch"], hello["version"] = c.epoch, c.version
	}
	send(hello)
	frames, end := make(chan frame), make(chan int, 1)
	go func() {
		for {
			_, text, err := ws.Read(ctx)
			if err != nil {
				end <- int(websocket.CloseStatus(err))
				return
			}
			f, err := decodeFrame(text)
			if err != nil {
				panic(err)
			}
			select {
			case frames <- f:
			case <-ctx.Done():
				return
			}
		}
	}()
	return c.stay(frames, end, send)
}

// stay uses a connection until it ends.
func (c *reference) stay(frames <-chan frame, end <-chan int, send func(frame)) (code int, pause time.Duration) {
	var (
		online   bool
		renewal  <-chan time.Time
		patience = time.Minute
		dead     = time.NewTimer(patience)
	)
	flush := func() {
		if online && !c.sent && len(c.queue) > 0 {
			if c.bug == "makes new ids" {
				id := uuid.NewString()
				c.numbers[id] = c.numbers[c.queue[0].text("id")]
				c.queue[0] = c.queue[0].with("id", id) // a new frame: the old one may be being sent
			}
			c.sent = true
			send(c.queue[0])
		}
	}
	for {
		flush()
		select {
		case f := <-frames:
			dead.Reset(patience)
			switch f.text("t") {
			case "snapshot", "changes":
				c.apply(f)
				online = true
				if ms, ok := f["ping_ms"].(json.Number); ok && c.bug != "trusts silence" {
					n, _ := ms.Int64()
					patience = time.Duration(n) * time.Millisecond * 5 / 2
					dead.Reset(patience)
				}
				if ms, ok := f["expires_in_ms"].(json.Number); ok && !c.streams {
					renewal = c.renewAfter(ms)
				}
			case "ok", "error":
				if stop := c.answered(f); stop {
					return 0, 0
				}
				if ms, ok := f["expires_in_ms"].(json.Number); ok && c.bug == "renews at once" {
					renewal = c.renewAfter(ms)
				}
			case "ping":
				if c.bug != "does not answer pings" {
					send(golden("pong"))
				}
			case "bye":
				code, _ := strconv.Atoi(fmt.Sprint(f["code"]))
				ms, _ := strconv.Atoi(fmt.Sprint(f["reconnect_ms"]))
				return code, time.Duration(ms) * time.Millisecond
			default:
				if c.bug == "trusts frames of any type" {
					c.apply(f.with("t", "changes").with("epoch", c.epoch))
				}
			}
		case code := <-end:
			return code, 0
		case command, ok := <-c.commands:
			c.take(command, ok)
		case <-c.again:
			c.sent = false
		case <-renewal:
			renewal = nil
			c.renew()
			send(frame{"t": "auth", "id": "auth", "token": c.token})
		case <-dead.C:
			return 0, 0
		}
	}
}

// renewAfter returns a channel that fires when a token with this remaining lifetime must be
// renewed.
func (c *reference) renewAfter(ms json.Number) <-chan time.Time {
	n, _ := ms.Int64()
	return time.After(time.Duration(n) * time.Millisecond * 3 / 4)
}

// answered handles the answer to the first command of the queue. It returns true if the client
// has to end the connection.
func (c *reference) answered(f frame) (stop bool) {
	id := f.text("id")
	if id == "auth" {
		return f["t"] == "error" && c.bug == "gives up if its token is not checked"
	}
	if ms, ok := f["retry_ms"].(json.Number); ok && c.bug != "does not retry" {
		n, _ := ms.Int64()
		c.again = time.After(time.Duration(n) * time.Millisecond)
		if c.bug == "retries at once" {
			c.again = time.After(0)
		}
		return false
	}
	if c.numbers[id] == nil { // a command of the previous process
	} else if f["t"] == "ok" {
		c.print(frame{"done": c.numbers[id]})
	} else {
		c.print(frame{"failed": c.numbers[id], "code": f["code"]})
	}
	c.queue, c.sent = c.queue[1:], false
	c.store()
	return false
}

// apply applies a state frame and prints what it shows.
func (c *reference) apply(f frame) {
	number, _ := f["version"].(json.Number)
	version, _ := number.Int64()
	snapshot := f.text("t") == "snapshot"
	switch {
	case snapshot && c.bug == "ignores older snapshots" && version < c.version,
		!snapshot && c.bug != "applies older frames" && version <= c.version,
		!snapshot && c.bug == "wants every version" && version != c.version+1:
		return
	}
	if c.conversations == nil || snapshot && c.bug != "merges snapshots" {
		c.conversations = map[string]frame{}
	}
	if c.epoch == "" || c.bug != "keeps its epoch" {
		c.epoch = f.text("epoch")
	}
	c.version = version
	c.total, _ = f["total"].(json.Number)
	c.unread = f["unread_conversations"]
	listed, _ := f["conversations"].([]any)
	for _, one := range listed {
		conversation := frame(one.(map[string]any))
		c.conversations[conversation.text("conversation_id")] = conversation
	}
	c.applyPaths(f)
	c.store()
	c.show()
}

// applyPaths applies the categories of a state frame and their levels.
func (c *reference) applyPaths(f frame) {
	all := f.text("t") == "snapshot" || f["all_categories"] == true && c.bug != "keeps all categories"
	if all || c.bug == "replaces categories" {
		c.categories = frame{}
	}
	categories, _ := f["categories"].(map[string]any)
	for path, one := range categories {
		c.categories = c.categories.with(path, one)
		if fmt.Sprint(one) == "map[mentions:0 total:0 unread_conversations:0 unseen:0]" && c.bug != "keeps empty categories" {
			delete(c.categories, path)
		}
	}
	levels, changed := f["levels"].(map[string]any)
	if all || changed && c.bug != "merges levels" {
		c.levels = frame{}
	}
	for path, level := range levels {
		c.levels = c.levels.with(path, level)
	}
}

// show prints the state.
func (c *reference) show() {
	shown := maps.Clone(c.conversations)
	line := frame{"version": c.version, "total": c.total, "conversations": shown}
	switch c.bug {
	case "ends levels itself":
		for id, one := range shown {
			if until, err := time.Parse(time.RFC3339, one.text("level_until")); err == nil && until.Before(time.Now()) {
				shown[id] = one.with("level_until", "")
				line["total"] = json.Number("5")
			}
		}
	case "keeps the ends of levels":
		for id, one := range shown {
			if c.ends[id] == nil {
				c.ends[id] = one["level_until"]
			}
			shown[id] = one.with("level_until", c.ends[id])
		}
	case "": // clients need not report these fields
		line["unread_conversations"] = c.unread
		line["categories"], line["levels"] = c.categories, c.levels
	case "replaces categories", "keeps all categories", "keeps empty categories", "merges levels", "stores no levels":
		line["categories"], line["levels"] = c.categories, c.levels
	case "counts conversations itself":
		line["unread_conversations"] = len(shown)
	}
	c.print(line)
}
