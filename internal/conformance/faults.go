package conformance

import (
	"errors"
	"fmt"
	"net/http"
	"time"
)

// loses cuts the connection of the client's last command over HTTP, so that the answer is lost.
func loses() step {
	return func(p *performance) error {
		p.note(time.Now(), "the server cuts the connection of the command")
		p.post.cut()
		p.post = nil
		return nil
	}
}

// garbles answers the client's last command over HTTP with status 502 and HTML instead of JSON. A
// proxy gives such an answer if it cannot reach its server.
func garbles() step {
	return func(p *performance) error {
		p.note(time.Now(), "a proxy answers the command with 502 and HTML")
		p.post.answers <- ofProxy(http.StatusBadGateway)
		p.post = nil
		return nil
	}
}

// ofProxy returns an answer as a proxy would give it: with a status and a body in HTML.
func ofProxy(status int) answer {
	return answer{status: status, contentType: "text/html", body: []byte("<h1>" + http.StatusText(status) + "</h1>")}
}

// turnsAway waits until the client opens an event stream, and refuses the stream with an HTTP
// status. If pause is not 0, the answer contains pause as retry_ms.
func turnsAway(status int, pause time.Duration) step {
	return func(p *performance) error {
		refusal := frame{"message": "the script says so"}
		if pause > 0 {
			refusal["retry_ms"] = pause.Milliseconds()
		}
		if err := p.refuseStream(problem(status, refusal)); err != nil {
			return err
		}
		p.refusedStream = true
		p.mustRenew = p.mustRenew || status == http.StatusUnauthorized
		if pause > 0 {
			p.comeBack = time.Now().Add(pause)
		}
		return nil
	}
}

// turnsAwayAsProxy waits until the client opens a stream, and refuses it as a proxy would.
func turnsAwayAsProxy(status int) step {
	return func(p *performance) error { return p.refuseStream(ofProxy(status)) }
}

func (p *performance) refuseStream(a answer) error {
	if err := opens()(p); err != nil {
		return err
	}
	refused, ok := p.conn.link.(*stream)
	if !ok {
		return errors.New("only a stream is refused with a status")
	}
	p.note(time.Now(), fmt.Sprintf("the server refuses the stream with %d %s", a.status, a.body))
	refused.refuse(a)
	p.conn = nil
	return nil
}

// writesAs sends a frame as a server-sent event. The function `parts` gets the encoded event. It
// may change the event, and divides it into parts; each part is written separately.
func writesAs(f frame, parts func(event string) []string) step {
	return func(p *performance) error {
		writer, ok := p.conn.link.(*stream)
		if !ok {
			return errors.New("only a stream is written in parts")
		}
		for _, part := range parts(eventOf(f)) {
			p.note(time.Now(), fmt.Sprintf("the server writes %q", part))
			if err := writer.write(part); err != nil {
				return &failure{expected: "a connection that takes events", happened: "writing failed: " + err.Error()}
			}
		}
		p.holds(f)
		return nil
	}
}

// comments sends only comments on an event stream for the given duration, one per interval. It
// fails if the client closes the connection during this time.
func comments(duration, interval time.Duration) step {
	return func(p *performance) error {
		const expected = "to keep a stream on which comments come"
		for end := time.Now().Add(duration); time.Now().Before(end); {
			p.note(time.Now(), "the server sends a comment")
			if err := p.conn.ping(); err != nil {
				return &failure{expected: expected, happened: "writing failed: " + err.Error()}
			}
			if err := p.quiet(expected, interval); err != nil {
				return err
			}
		}
		return nil
	}
}
