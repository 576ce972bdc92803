package conformance

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// scenario is a script for the server. It also says what the client must do.
type scenario struct {
	name, story string
	// way is how the client must send its token: see the constants way…; if it is empty, the client
	// chooses.
	way   string
	steps []step
	// transport is the transport of the scenario; empty means both transports.
	transport Transport
	// stores is true if the client gets a folder in which it can store its state.
	stores bool
}

const (
	// usualPause is the reconnect_ms that scripts send. It is longer than backoff, the pause that
	// clients choose without reconnect_ms, so that a scenario detects a client that ignores
	// reconnect_ms.
	usualPause = 400 * time.Millisecond
	// lifetime is how long a token of a script is valid. It is long enough that a client on a busy
	// machine can renew the token between its renewal timer and the expiry.
	lifetime = 8 * time.Second
	// minRenewInterval is the minimum time between two renewals of a client's token.
	minRenewInterval = 3 * time.Second
	// reading is how long the server waits for the client to read the bye frame before it cuts
	// the connection.
	reading = 400 * time.Millisecond
	// silence is the ping_ms in scenarios in which the server then stops answering.
	silence = 400 * time.Millisecond
	// murmur is the ping_ms in the scenario in which the server then sends only comments for the
	// duration calm. calm is longer than two and a half ping intervals, the time after which a
	// client closes a connection on which nothing arrives.
	murmur = 3 * time.Second
	calm   = 10 * time.Second
	// absence is a reconnect_ms that is longer than any scenario, so that only a client that was
	// restarted connects again.
	absence = 10 * time.Minute
)

// story makes a scenario of steps, for both transports.
func story(name, story string, steps ...step) scenario {
	return scenario{name: name, story: story, steps: steps}
}

// onTransport restricts a scenario to one transport.
func (s scenario) onTransport(transport Transport) scenario {
	s.transport = transport
	return s
}

// sendsTokenBy makes the client send its token in the given way.
func (s scenario) sendsTokenBy(way string) scenario {
	s.way = way
	return s
}

// storing gives the client a folder in which it can store its state. The folder remains when the
// client is restarted.
func (s scenario) storing() scenario {
	s.stores = true
	return s
}

// scenarios lists the scenarios of a transport. pause is the reconnect_ms and retry_ms that the
// server sends.
func scenarios(transport Transport, pause time.Duration) []scenario {
	var all []scenario
	for _, way := range []string{waySubprotocol, wayHeader, wayHello} {
		s := story("auth-"+way, "the client sends its token in this way: "+way, opensBy(way), greets(golden("snapshot")), shows()).sendsTokenBy(way)
		if way != wayHeader {
			s = s.onTransport(WebSockets)
		}
		all = append(all, s)
	}
	all = append(all, states()...)
	all = append(all, returns()...)
	for code := 4001; code <= 4004; code++ {
		s := story(fmt.Sprintf("refused-%d", code), fmt.Sprintf("the client does not reconnect after %d", code), started(), leaves(code, 0), refused(code))
		if code != 4001 { // the errors of the other codes are possible only on a WebSocket
			s = s.onTransport(WebSockets)
		}
		all = append(all, s)
	}
	all = append(all, closings(pause)...)
	all = append(all, commands(pause)...)
	all = append(all, paths()...)
	all = append(all, restartings()...)
	return slices.DeleteFunc(all, func(s scenario) bool { return s.transport != "" && s.transport != transport })
}

// changes returns a changes frame whose only conversation is "lunch".
func changes(version, total, unread int64) frame {
	return golden("changes").with("version", version).with("total", total).with("conversations", []any{lunch(version, unread)})
}

func lunch(version, unread int64) frame {
	return frame{
		"conversation_id": "lunch", "unread": unread, "mentions": 0, "first_unread_seq": 1, "read_seq": 0, "last_seq": unread,
		"level": "all", "category": "chat", "marked_unread": false, "version": version,
	}
}

// marked returns a changes frame in which "design-crew" is read and marked as unread.
func marked(version int64) frame {
	c := lunch(version, 0).with("conversation_id", "design-crew").with("first_unread_seq", 0)
	c = c.with("read_seq", 42).with("last_seq", 42).with("marked_unread", true)
	return golden("changes").with("version", version).with("total", 4).with("unread_conversations", 4).with("conversations", []any{c})
}

// states returns the scenarios about what the client shows during one connection.
func states() []scenario {
	unknown := changes(61, 6, 2).with("mood", frame{"fine": []any{1, nil}})
	unknown["conversations"].([]any)[0].(frame)["pinned"] = true
	var many []any
	for i := range 500 {
		c := lunch(int64(1+i), 1)
		c["conversation_id"] = fmt.Sprintf("%s-%03d", strings.Repeat("x", 124), i)
		many = append(many, c)
	}
	return []scenario{
		story("changes", "changes replace the numbers and the listed conversations; a conversation that the user has left is removed",
			started(), sends(golden("changes")), shows(), sends(golden("changes-left")), sends(changes(61, 7, 3)), shows(),
		),
		story("stale", "older and repeated changes are ignored",
			started(), sends(golden("changes")), shows(),
			sends(changes(58, 9, 5)), sends(golden("changes").with("total", 8)), pings(),
			sends(changes(60, 6, 2)), shows(),
		),
		story("lost-update", "an update is lost, so a version is missing: the next changes have what it changed",
			started(), sends(changes(75, 9, 3)), shows(), sends(changes(74, 8, 2)), pings(), sends(changes(90, 7, 1)), shows(),
		),
		story("unknown", "frames of unknown types and unknown fields are ignored",
			opens(), greets(golden("snapshot").with("mood", "fine")), shows(),
			sends(frame{"t": "party", "version": 99, "total": 99}), pings(),
			sends(unknown), shows(),
		),
		story("levels", "a level whose end has passed by the client's clock, and its level_until, stay until a changes frame removes them",
			opens(), greets(golden("snapshot-muted-until")), shows(), pings(), sends(golden("changes-level-ended")), shows(),
		),
		story("withdrawn", "a snapshot replaces the whole state, even if its version is lower",
			started(), greets(golden("snapshot-muted").with("version", 40)), shows(), sends(changes(41, 1, 1)), shows(),
		),
		story("other-categories", "a snapshot of another epoch comes on the same connection, as after a token with other categories; then changes without conversations come",
			started(), greets(golden("snapshot-muted").with("epoch", "e1.9f86d081884c7d65")), shows(),
			sends(changes(70, 2, 2).with("epoch", "e1.9f86d081884c7d65").with("conversations", []any{})), shows(),
			cuts(), resumed(), sends(changes(71, 3, 3).with("epoch", "e1.9f86d081884c7d65")), shows(),
		),
		story("large-snapshot", "a snapshot of 500 conversations",
			opens(), greets(golden("snapshot").with("total", 500).with("conversations", many).with("more", true)), shows(),
		),
		story("ping", "the client answers a frame ping with the frame pong, and a WebSocket ping with a WebSocket pong",
			started(), pings(), pingsBelow(), pings(),
		).onTransport(WebSockets),
		story("events", "the client parses all that the format of event streams permits: comments, unknown fields, other line ends, pieces of any size",
			started(),
			writesAs(changes(60, 6, 2), func(event string) []string { return []string{"event: message\nmood: fine\n:\n" + event} }), shows(),
			writesAs(changes(61, 7, 3), func(event string) []string { return []string{strings.ReplaceAll(event, "\n", "\r\n")} }), shows(),
			writesAs(crowded(62), inPieces), shows(),
			writesAs(changes(63, 5, 1), func(event string) []string { return []string{strings.ReplaceAll(event, "data: ", "data:")} }), shows(),
			cuts(), resumed(), pings(),
		).onTransport(ServerSentEvents),
		story("comments", "comments show that the connection works: the client keeps a stream with only comments open",
			opens(), greets(golden("snapshot").with("ping_ms", murmur.Milliseconds())), shows(),
			comments(calm, murmur/6), sends(changes(58, 7, 1)), shows(),
		).onTransport(ServerSentEvents),
		story("silence", "the client closes a connection on which nothing arrives for somewhat more than two ping intervals",
			opens(), greets(golden("snapshot").with("ping_ms", silence.Milliseconds())), shows(),
			fallsSilent(), resumed(), sends(changes(58, 7, 1)), shows(),
		),
	}
}

// returns returns the scenarios about clients that reconnect and already have a state.
func returns() []scenario {
	return []scenario{
		story("resume", "after a broken connection, hello or Last-Event-ID has the epoch and the version of the client's state",
			started(), sends(golden("changes")), shows(),
			cuts(), resumed(), sends(changes(60, 6, 2)), shows(),
			cuts(), opens(), greets(changes(63, 5, 1)), shows(), cuts(), resumed(), pings(),
		),
		story("gap", "after a gap the client gets a snapshot, and removes conversations that are not in it",
			started(), cuts(), opens(),
			greets(golden("snapshot").with("version", 900).with("total", 1).with("conversations", []any{lunch(900, 1)})), shows(),
			cuts(), resumed(), pings(),
		),
		story("new-epoch", "a snapshot of a new epoch replaces everything, and the client then resumes from that epoch",
			started(), cuts(), opens(), greets(golden("snapshot-muted").with("epoch", "e2")), shows(),
			sends(changes(10, 1, 1).with("epoch", "e2")), shows(), cuts(), resumed(), pings(),
		),
		story("stale-resume", "changes that the client has ignored do not change the version in its next hello",
			started(), sends(golden("changes")), shows(), sends(changes(58, 9, 5)), pings(), cuts(), resumed(), pings(),
		).onTransport(WebSockets),
		story("slow", "a client that was too slow is closed without bye, a WebSocket with 4103, and resumes",
			started(), closes(4103), opens(), greets(changes(80, 9, 3)), shows(),
		),
	}
}

// closings returns the scenarios about the end of connections and the expiry of tokens.
func closings(pause time.Duration) []scenario {
	return []scenario{
		story("back-off", "after 4100, 4101 and 4102 the client waits for reconnect_ms",
			started(), leaves(4100, pause), resumed(), leaves(4101, pause), resumed(), leaves(4102, pause), resumed(), pings(),
		),
		story("reconnect", "after 4200 and 4203 the client reconnects after reconnect_ms; after 4201 and codes of later servers too",
			started(), leaves(4200, pause), resumed(), leaves(4201, 0), resumed(), leaves(4203, pause), resumed(), leaves(4299, 0), resumed(), pings(),
		),
		story("bye", "the client obeys reconnect_ms of bye even if the connection then breaks without a close frame",
			started(), says(4200, pause+reading), breaksOff(), resumed(), pings(),
		),
		story("bye-refused", "the client does not reconnect after bye with 4001, even if the connection then breaks without a close frame",
			started(), says(4001, 0), breaksOff(), refused(4001),
		),
		story("close-refused", "the client does not reconnect after a close frame with 4001, even without bye",
			started(), closes(4001), refused(4001),
		).onTransport(WebSockets),
		story("token-expired", "after 4202 the client reconnects with a new token",
			started(), leaves(4202, 0), resumed(), pings(),
		),
		story("token-refresh", "the client sends a new token before the current token expires, and stays connected",
			opens(), greetsUntil(golden("snapshot"), lifetime), shows(), renews(),
			answers(golden("ok-auth").with("expires_in_ms", time.Hour.Milliseconds())),
			sends(changes(58, 7, 1)), shows(),
		).onTransport(WebSockets),
		story("token-short", "if a new token expires soon, the client does not ask for the next token at once, over and over",
			opens(), greetsUntil(golden("snapshot"), lifetime), shows(), renews(),
			answers(golden("ok-auth").with("expires_in_ms", 100)), keepsItsToken(minRenewInterval),
			sends(changes(58, 7, 1)), shows(),
		).onTransport(WebSockets),
		story("token-unchecked", "if the server cannot verify a new token now, the connection stays open",
			opens(), greetsUntil(golden("snapshot"), lifetime), shows(), renews(),
			answers(frame{"t": "error", "code": "unavailable", "message": "the token cannot be checked now"}),
			pings(), sends(changes(58, 7, 1)), shows(),
		).onTransport(WebSockets),
		story("status-401", "after a stream was refused with 401, the client opens it again with a new token",
			turnsAway(http.StatusUnauthorized, 0), started(),
			cuts(), turnsAway(http.StatusUnauthorized, 0), resumed(), pings(),
		).onTransport(ServerSentEvents),
		story("status-429", "after a stream was refused with 429, the client opens it again after retry_ms",
			turnsAway(http.StatusTooManyRequests, pause), started(),
			cuts(), turnsAway(http.StatusTooManyRequests, pause), resumed(), pings(),
		).onTransport(ServerSentEvents),
		story("status-503", "after a stream was refused with 503, the client opens it again after retry_ms",
			turnsAway(http.StatusServiceUnavailable, pause), started(),
			cuts(), turnsAway(http.StatusServiceUnavailable, pause), resumed(), pings(),
		).onTransport(ServerSentEvents),
		story("status-proxy", "if a proxy answers the request for a stream with 502 or 403 and HTML, the client sends it again",
			started(), cuts(), turnsAwayAsProxy(http.StatusBadGateway), resumed(),
			cuts(), turnsAwayAsProxy(http.StatusForbidden), resumed(), pings(),
		).onTransport(ServerSentEvents),
	}
}

// commands returns the scenarios about commands of the user.
func commands(pause time.Duration) []scenario {
	ok := golden("ok")
	seq := json.Number("1851234567890123777")
	read := frame{"conversation_id": "design-crew", "up_to_seq": "42"}
	wantRead := frame{"conversation_id": "design-crew", "up_to_seq": 42}
	return []scenario{
		story("read", "the client sends a read and reports its ok, and changes show its effect",
			started(), performs("read", read), gets("read", wantRead), answers(ok), done(), sends(golden("changes")), shows(),
		),
		story("changes-before-ok", "the changes with the effect of a read come before its ok",
			started(), performs("read", read), gets("read", wantRead), sends(golden("changes")), shows(), answers(ok), done(),
		),
		story("read_all", "the client sends read_all while it is connected",
			started(), performs("read_all", frame{}), gets("read_all", frame{}), answers(ok), done(),
			greets(golden("snapshot-muted").with("version", 58)), shows(),
		),
		story("mark_unread", "the client sends mark_unread",
			started(), performs("mark_unread", frame{"conversation_id": "Café ☕"}),
			gets("mark_unread", frame{"conversation_id": "Café ☕"}), answers(ok), done(),
			sends(golden("changes")), shows(),
		),
		story("command-refused", "after an error without retry_ms the client does not send the command again, and undoes its effect",
			started(), performs("mark_unread", frame{"conversation_id": "design-crew"}),
			gets("mark_unread", frame{"conversation_id": "design-crew"}), answers(golden("error-final")), failed("not_found"), shows(),
			pings(), sends(golden("changes")), shows(),
		),
		story("read-refused", "a read of a conversation outside the categories of the token is refused: the client does not send it again, and undoes its effect",
			started(), performs("read", read), gets("read", wantRead), answers(golden("error-final")), failed("not_found"), shows(),
			pings(), sends(golden("changes")), shows(),
		),
		story("command-invalid", "the client itself refuses a command with an invalid id: it does not send it, and other commands still work",
			started(),
			performs("read", read.with("conversation_id", "")), failed("invalid"),
			performs("read", read.with("conversation_id", strings.Repeat("é", 65))), failed("invalid"),
			performs("mark_unread", frame{"conversation_id": strings.Repeat("x", 5000)}), failed("invalid"),
			performs("mark_unread", frame{"conversation_id": "design\u0000crew"}), failed("invalid"),
			performs("read", read), gets("read", wantRead), answers(ok), done(), sends(golden("changes")), shows(),
		),
		story("command-retried", "after an error with retry_ms the client sends the command again, but not before that time",
			started(), performs("read", read), gets("read", wantRead), retries(golden("error"), pause), answers(ok), done(),
			sends(golden("changes")), shows(),
		),
		story("command-limited", "after 429 the client sends the command again, but not before retry_ms has passed",
			started(), performs("read", read), gets("read", wantRead), retries(golden("error-rate-limited"), pause), answers(ok), done(),
			sends(golden("changes")), shows(),
		).onTransport(ServerSentEvents),
		story("command-lost", "if only the answer to a command is lost, the client sends the command again with the same id, and the stream stays open",
			started(), performs("read", read), gets("read", wantRead), loses(), getsAgain(), answers(ok), done(),
			sends(golden("changes")), shows(),
		).onTransport(ServerSentEvents),
		story("command-proxy", "if a proxy answers a command with 502 and HTML, the client sends it again with the same id",
			started(), performs("read", read), gets("read", wantRead), garbles(), getsAgain(), answers(ok), done(),
			sends(golden("changes")), shows(),
		).onTransport(ServerSentEvents),
		story("answer-lost", "if the answer to a command is lost with the connection, the client sends the command again after the reconnect, with the same id",
			started(), performs("read", read), gets("read", wantRead), cuts(), resumed(), getsAgain(), answers(ok), done(),
			sends(golden("changes")), shows(),
		),
		story("offline", "a read while the client had no connection is sent after the reconnect",
			started(), leaves(4200, pause), performs("read", read), resumed(), gets("read", wantRead), answers(ok), done(),
			sends(golden("changes")), shows(),
		),
		story("large-seqs", "seqs above 2^53 are not rounded",
			opens(), greets(golden("snapshot-large-seqs")), shows(),
			performs("read", frame{"conversation_id": "snowflakes", "up_to_seq": seq.String()}),
			gets("read", frame{"conversation_id": "snowflakes", "up_to_seq": seq}), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 4)), shows(),
		),
	}
}

// restartings returns the scenarios about clients that are restarted and store their state.
func restartings() []scenario {
	ok := golden("ok")
	read := frame{"conversation_id": "design-crew", "up_to_seq": "42"}
	wantRead := frame{"conversation_id": "design-crew", "up_to_seq": 42}
	return []scenario{
		story("restart", "after a restart the client resumes with the epoch and the version of its last state",
			started(), sends(golden("changes")), shows(),
			restarts(), resumed(), shows(), sends(changes(60, 6, 2)), shows(),
			restarts(), opens(), greets(changes(63, 5, 1)), shows(),
		).storing(),
		story("restart-levels", "after a restart the client still knows when levels end",
			opens(), greets(golden("snapshot-muted-until")), shows(), restarts(), resumed(), shows(),
			sends(golden("changes-level-ended")), shows(), restarts(), resumed(), shows(),
		).storing(),
		story("restart-epoch", "a snapshot of a new epoch replaces the stored state, and is stored in its place",
			started(), restarts(), opens(), greets(golden("snapshot-muted").with("epoch", "e2")), shows(),
			restarts(), resumed(), shows(), sends(changes(10, 1, 1).with("epoch", "e2")), shows(),
		).storing(),
		story("restart-unsent", "commands that the user gave without a connection are sent in order after a restart of the client",
			started(), leaves(4200, absence), performs("read", read), performs("mark_unread", frame{"conversation_id": "design-crew"}),
			restarts(), resumed(),
			gets("read", wantRead), answers(ok), gets("mark_unread", frame{"conversation_id": "design-crew"}), answers(ok),
			sends(marked(59)), shows(),
		).storing(),
		story("restart-unanswered", "after a restart the client sends a command without an answer once more, with the same id, and not again after its answer",
			started(), performs("read", read), gets("read", wantRead),
			// The client sends a second command, since it has then handled the answer to the first.
			// A frame on the stream would not show this: on the transport sse, the answer to a
			// command is an HTTP response, and may arrive after later frames of the stream.
			restarts(), resumed(), getsAgain(), answers(ok),
			performs("mark_unread", frame{"conversation_id": "design-crew"}), gets("mark_unread", frame{"conversation_id": "design-crew"}), answers(ok), done(),
			sends(marked(59)), shows(),
			restarts(), resumed(), shows(), sendsNothing(), pings(), sends(changes(60, 6, 2)), shows(),
		).storing(),
		story("killed", "the client stores commands before it sends them, so they survive if the client is killed",
			started(), performs("read", read), gets("read", wantRead),
			kills(), opens(), greets(golden("snapshot").with("version", 58)), getsAgain(), answers(ok), sends(golden("changes")), shows(),
		).storing(),
		story("restart-truncated", "if the stored files of the client are truncated, it starts without a state that it never had",
			started(), restartsAfter((*performance).truncates), opens(), greets(golden("snapshot-muted").with("version", 70)), shows(),
			restarts(), resumed(), shows(), sends(changes(71, 1, 1)), shows(),
		).storing(),
		story("restart-user", "after another user signs in, the client shows, resumes and sends nothing of the former user",
			started(), leaves(4200, absence), performs("read", read),
			restartsAfter((*performance).signsIn), opens(), greets(golden("snapshot-muted")), shows(), pings(),
			sends(changes(60, 6, 2)), shows(),
		).storing(),
	}
}

// crowded returns a changes frame with a conversation whose name has multi-byte characters.
func crowded(version int64) frame {
	c := lunch(version, 4)
	c["conversation_id"] = "Café ☕"
	return changes(version, 8, 4).with("conversations", []any{c})
}

// inPieces splits an event into pieces of 7 bytes, which may end within a line or a character.
func inPieces(event string) []string {
	var pieces []string
	for piece := range slices.Chunk([]byte(event), 7) {
		pieces = append(pieces, string(piece))
	}
	return pieces
}
