package conformance

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"
)

// grace is how early a client may act, since timers may fire a little early.
const grace = 10 * time.Millisecond

// step is a part of a script. It returns a *failure if the client does not behave as expected.
type step func(*performance) error

// sequence is a step that runs several steps in order.
func sequence(steps ...step) step {
	return func(p *performance) error { return p.run(steps) }
}

// opens waits until the client connects, sends its token, and sends hello with the epoch and
// version of its state.
func opens() step { return opensBy("") }

func opensBy(way string) step {
	return func(p *performance) error {
		found, err := p.connects()
		if err != nil {
			return err
		}
		hello := lastEvent(p.conn.lastEventID)
		if p.transport == WebSockets {
			if err := p.takes("hello", p.expectedHello()); err != nil {
				return err
			}
			hello = p.last
			if token := hello.text("token"); token != "" {
				found[wayHello] = token
			}
		} else {
			way = wayHeader // the only way for streams
		}
		if err := p.checkHello(hello); err != nil {
			return err
		}
		return p.checkToken(found, way)
	}
}

// connects waits for a connection, and returns the tokens that its handshake contained.
func (p *performance) connects() (found map[string]string, err error) {
	expected := "a WebSocket to /v1/ws that offers badge.v1"
	if p.transport == ServerSentEvents {
		expected = "GET /v1/sse"
	}
	p.opening = true
	err = p.await(expected, func(e event) (bool, error) {
		if e.kind != opened {
			return false, nil
		}
		if p.transport == WebSockets && !slices.Contains(e.conn.protocols, "badge.v1") {
			return false, &failure{expected: "the subprotocol badge.v1", happened: fmt.Sprintf("the client offers %q", e.conn.protocols)}
		}
		if early := p.comeBack.Sub(e.at); early > grace {
			return false, &failure{expected: "to reconnect after " + p.pauseName(), happened: fmt.Sprintf("the client reconnects %v too early", early.Round(time.Millisecond))}
		}
		p.conn, found = e.conn, e.conn.credentials()
		return true, nil
	})
	p.opening = false
	p.overtaken = append(p.overtaken, p.earlyEvents...)
	p.earlyEvents = nil
	return found, err
}

// pauseName returns the name of the field in which the server sent the pause that the client must
// wait for.
func (p *performance) pauseName() string {
	if p.refusedStream {
		return "retry_ms"
	}
	return "reconnect_ms"
}

func (p *performance) expectedHello() string {
	name := "hello"
	if p.transport == ServerSentEvents {
		name = "Last-Event-ID"
	}
	switch {
	case p.lost:
		return name + " with a state that the client has held, or none"
	case p.held.Epoch == "":
		return name + " without a state"
	default:
		return fmt.Sprintf("%s with epoch %s and version %d", name, p.held.Epoch, p.held.Version)
	}
}

// checkHello checks the epoch and version of the client's hello.
func (p *performance) checkHello(hello frame) error {
	may := []state{p.held}
	if p.lost {
		may = append(may, p.before...)
	}
	expected := p.expectedHello()
	p.lost = false
	epoch, version := hello["epoch"], hello["version"]
	for _, s := range may {
		if s.Epoch == "" && epoch == nil && version == nil ||
			s.Epoch != "" && epoch == s.Epoch && version == json.Number(strconv.FormatInt(s.Version, 10)) {
			return nil
		}
	}
	return &failure{expected: expected, happened: fmt.Sprintf("the client sends epoch %v and version %v", epoch, version)}
}

// takes waits for a frame of type t from the client.
func (p *performance) takes(t, expected string) error { return p.takesFor(p.timeout, t, expected) }

func (p *performance) takesFor(limit time.Duration, t, expected string) error {
	return p.awaitFor(limit, expected, func(e event) (bool, error) {
		if e.kind != received {
			return false, nil
		}
		f, err := decodeClientFrame(e.text)
		if err != nil || f.text("t") != t {
			return false, err
		}
		p.last, p.post = f, e.post
		if p.post != nil {
			return true, p.checkToken(bearer(p.post.header), wayHeader)
		}
		return true, nil
	})
}

func sends(f frame) step {
	return func(p *performance) error { return p.send(f) }
}

// greets answers hello with a state frame. It adds ping_ms and expires_in_ms to the frame.
func greets(f frame) step { return greetsUntil(f, time.Hour) }

// greetsUntil is like greets, but the client's token expires after left.
func greetsUntil(f frame, left time.Duration) step {
	return func(p *performance) error {
		p.expires = time.Now().Add(left)
		terms := f.with("expires_in_ms", left.Milliseconds())
		if _, ok := f["ping_ms"]; !ok {
			terms["ping_ms"] = 25_000
		}
		return p.send(terms)
	}
}

// greetsWithNothing answers hello with a changes frame that has no changes.
func greetsWithNothing() step {
	return func(p *performance) error {
		nothing := golden("changes-none").with("epoch", p.held.Epoch).with("version", p.held.Version).with("total", p.held.Total).
			with("categories", p.held.Categories).with("levels", p.held.Levels)
		return greets(nothing)(p)
	}
}

// shows waits until the client shows the state that results from the frames of the server.
func shows() step {
	return func(p *performance) error {
		expected := "to show " + p.held.String()
		for !p.shown.looksLike(p.held) {
			if err := p.await(expected, func(e event) (bool, error) {
				return e.kind == showed && p.shown.looksLike(p.held), nil
			}); err != nil {
				return err
			}
		}
		p.pending = false
		return nil
	}
}

// started opens the first connection with the golden snapshot.
func started() step { return sequence(opens(), greets(golden("snapshot")), shows()) }

// resumed waits until the client reconnects, and answers with a frame that changes nothing.
func resumed() step { return sequence(opens(), greetsWithNothing()) }

// cuts ends the connection with a TCP reset, without a close frame.
func cuts() step {
	return func(p *performance) error {
		p.note(time.Now(), "the server cuts the connection")
		p.conn.cut()
		p.conn = nil
		if p.post != nil {
			p.post.cut()
			p.post = nil
		}
		return nil
	}
}

// breaksOff cuts the connection when the client has probably read all frames: after the duration
// `reading`, or earlier if the client does something other than to show a state or to answer a
// ping. It does not cut the connection at once: when a connection breaks, a browser drops the
// frames that the page has not read yet.
func breaksOff() step {
	return func(p *performance) error {
		err := p.awaitFor(reading, "to read bye", func(e event) (bool, error) {
			switch e.kind {
			case showed, ponged: // these events may be reactions to earlier frames
				return false, nil
			case closed:
			default:
				p.overtaken = append(p.overtaken, e)
			}
			return true, nil
		})
		if fails, ok := errors.AsType[*failure](err); err != nil && (!ok || !fails.nothing) {
			return err
		}
		return cuts()(p)
	}
}

// says sends the frame bye with a code. If pause is not 0, the frame contains pause as
// reconnect_ms, and the client must wait that long before it reconnects.
func says(code int, pause time.Duration) step {
	return func(p *performance) error {
		p.refusedStream = false
		bye := frame{"t": "bye", "code": code, "reason": "the script says so"}
		if pause > 0 {
			bye["reconnect_ms"] = pause.Milliseconds()
			p.comeBack = time.Now().Add(pause)
		}
		p.mustRenew = p.mustRenew || code == 4202
		return p.send(bye)
	}
}

// closes sends a close frame without bye.
func closes(code int) step {
	return func(p *performance) error {
		if p.transport == WebSockets {
			p.note(time.Now(), fmt.Sprintf("the server closes the connection with %d", code))
		} else {
			p.note(time.Now(), "the server ends the stream")
		}
		p.mustRenew = p.mustRenew || code == 4202
		_ = p.conn.end(code, "the script says so") // ignore the error: after bye the client may have closed the connection already
		p.conn = nil
		return nil
	}
}

// leaves sends bye and the close frame.
func leaves(code int, pause time.Duration) step { return sequence(says(code, pause), closes(code)) }

// refused waits until the client prints that it will not reconnect.
func refused(code int) step {
	return func(p *performance) error {
		expected := fmt.Sprintf(`not to reconnect after %d, and the line {"refused":%d}`, code, code)
		err := p.await(expected, func(e event) (bool, error) {
			if e.kind != printed {
				return false, nil
			}
			l, err := decodeLine(e.text)
			return err == nil && l.Refused != nil && *l.Refused == code, err
		})
		if err != nil {
			return err
		}
		// A client that reconnects although it must not does so within a few backoffs.
		return p.quiet(expected, 5*backoff)
	}
}

// quiet fails if the client does anything during the given time. But the client may show a state
// that is allowed at this point (see show), and may send pings and WebSocket pongs.
func (p *performance) quiet(expected string, duration time.Duration) error {
	err := p.awaitFor(duration, expected, func(event) (bool, error) { return false, nil })
	if fails, ok := errors.AsType[*failure](err); ok && fails.nothing {
		return nil
	}
	return err
}

// sendsNothing fails if the client sends a command within a short time. Over WebSockets it returns
// at once: the next step of the scenario is pings, which detects the command.
func sendsNothing() step {
	return func(p *performance) error {
		if p.transport != ServerSentEvents {
			return nil
		}
		return p.quiet("nothing: the command was answered", 5*backoff)
	}
}

// performs passes a command of the user to the client's program.
func performs(do string, fields frame) step {
	return func(p *performance) error {
		p.commands++
		p.pending = true
		command := fields.with("do", do).with("n", p.commands)
		p.note(time.Now(), "the user does "+string(command.encode()))
		if err := p.client.do(command); err != nil {
			return &failure{expected: "a client that reads commands", happened: "writing to it failed: " + err.Error()}
		}
		return nil
	}
}

// gets waits for a command of the client that has exactly the given fields, and an id.
func gets(t string, fields frame) step {
	return func(p *performance) error {
		expected := string(fields.with("t", t).encode()) + " with an id"
		if err := p.takes(t, expected); err != nil {
			return err
		}
		for name, want := range fields {
			if got := p.last[name]; fmt.Sprint(got) != fmt.Sprint(want) {
				return &failure{expected: expected, happened: fmt.Sprintf("the client sends %s %v", name, got)}
			}
		}
		for name := range p.last {
			if _, known := fields[name]; !known && name != "t" && name != "id" {
				return &failure{expected: expected, happened: fmt.Sprintf("the client sends the field %s too: a server refuses a command with a field that it does not know", name)}
			}
		}
		p.command = p.last
		if p.last["id"] == nil {
			return &failure{expected: expected, happened: "the client sends no id: it cannot know what an answer is about"}
		}
		return nil
	}
}

// retries refuses the client's last command with the given error frame, with `after` as retry_ms.
// It fails if the client repeats the command before `after` has passed, or does not repeat it.
func retries(refusal frame, after time.Duration) step {
	return func(p *performance) error {
		again := time.Now().Add(after)
		refusal := refusal.with("id", p.last["id"]).with("retry_ms", after.Milliseconds())
		if err := sequence(replies(refusal), getsAgain())(p); err != nil {
			return err
		}
		if early := time.Until(again); early > grace {
			return &failure{expected: "the command again after retry_ms", happened: fmt.Sprintf("the client sends it %v too early", early.Round(time.Millisecond))}
		}
		return nil
	}
}

// getsAgain waits until the client sends its last command again, with the same id.
func getsAgain() step {
	return func(p *performance) error {
		before := p.command
		if err := p.takes(before.text("t"), "the command again, as "+string(before.encode())); err != nil {
			return err
		}
		if before["id"] != p.last["id"] {
			return &failure{expected: "the same id as before", happened: fmt.Sprintf("the client sends the id %v", p.last["id"])}
		}
		return nil
	}
}

// answers answers the last frame of the client, with the frame's id.
func answers(f frame) step {
	return func(p *performance) error { return p.reply(f.with("id", p.last["id"])) }
}

func replies(f frame) step {
	return func(p *performance) error { return p.reply(f) }
}

// done waits until the client prints that its last command is durable.
func done() step {
	return func(p *performance) error {
		return p.await(fmt.Sprintf(`the line {"done":%d}`, p.commands), func(e event) (bool, error) {
			if e.kind != printed {
				return false, nil
			}
			l, err := decodeLine(e.text)
			return err == nil && l.Done != nil && *l.Done == p.commands, err
		})
	}
}

// failed waits until the client prints that its last command was refused with a code.
func failed(code string) step {
	return func(p *performance) error {
		return p.await(fmt.Sprintf(`the line {"failed":%d,"code":%q}`, p.commands, code), func(e event) (bool, error) {
			if e.kind != printed {
				return false, nil
			}
			l, err := decodeLine(e.text)
			return err == nil && l.Failed != nil && *l.Failed == p.commands && l.Code == code, err
		})
	}
}

// pings sends a ping and waits for the pong, which shows that the client has handled all earlier
// frames. On an event stream it only sends a comment, because clients do not answer comments.
func pings() step {
	return func(p *performance) error {
		if p.transport == ServerSentEvents {
			p.note(time.Now(), "the server sends a comment")
			if err := p.conn.ping(); err != nil {
				return &failure{expected: "a connection that takes events", happened: "writing failed: " + err.Error()}
			}
			return nil
		}
		if err := p.send(golden("ping")); err != nil {
			return err
		}
		return p.takes("pong", "the frame pong")
	}
}

// pingsBelow sends a ping frame of the WebSocket protocol, and waits for the pong frame.
func pingsBelow() step {
	return func(p *performance) error {
		p.note(time.Now(), "the server sends a ping of WebSockets")
		if err := p.conn.ping(); err != nil {
			return &failure{expected: "a connection that takes pings", happened: "writing failed: " + err.Error()}
		}
		return p.await("a pong of WebSockets", func(e event) (bool, error) { return e.kind == ponged, nil })
	}
}

// fallsSilent makes the server stop answering pings, and waits until the client closes the
// connection, or opens a new connection.
func fallsSilent() step {
	return func(p *performance) error {
		p.note(time.Now(), "the server falls silent")
		p.mute = true
		p.conn.mute.Store(true)
		err := p.await("to give up a connection without a sign of life", func(e event) (bool, error) {
			if e.kind == opened { // the client has opened a new connection before the end of the old connection was reported
				p.overtaken = append(p.overtaken, e)
			}
			return e.kind == closed || e.kind == opened, nil
		})
		p.mute, p.conn = false, nil
		return err
	}
}

// renews waits until the client sends a fresh token. It fails if the old token expires first.
func renews() step {
	return func(p *performance) error {
		if err := p.takesFor(time.Until(p.expires), "auth", "auth before the token expires"); err != nil {
			return err
		}
		if p.last["id"] == nil {
			return &failure{expected: "auth with an id", happened: "the client sends none: it cannot know what an answer is about"}
		}
		if p.last.text("token") != p.freshToken() {
			return &failure{expected: "auth with the token of BADGED_FRESH_TOKEN", happened: "the client sends another token"}
		}
		return nil
	}
}

// keepsItsToken fails if the client sends a token within a duration.
func keepsItsToken(duration time.Duration) step {
	return func(p *performance) error {
		return p.quiet("not to renew a token again so soon", duration)
	}
}

// ends closes the client's standard input and waits until the client exits with status 0. It
// checks the lines that the client prints until then.
func ends() step {
	return func(p *performance) error {
		p.note(time.Now(), "the script ends")
		if err := p.client.stdin.Close(); err != nil {
			return &failure{expected: "a client that reads commands", happened: "closing its standard input failed: " + err.Error()}
		}
		p.conn = nil // the client may close it
		return p.await("the program to exit with 0 at the end of its standard input", func(e event) (bool, error) {
			return e.kind == exited && e.err == nil, nil
		})
	}
}
