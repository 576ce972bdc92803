package conformance

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// scenario is a story that a client plays with the server.
type scenario struct {
	name, story string
	// way is how the client must give its token; empty leaves it to the client.
	way   string
	steps []step
}

const (
	// usualPause is the reconnect_ms of scripts: longer than the client's own.
	usualPause = 400 * time.Millisecond
	// lifetime is how long a token of the scripts lasts at least. A client on a busy
	// machine needs time between its timer and the end.
	lifetime = 8 * time.Second
	// silence is the ping interval of a server that falls silent.
	silence = 400 * time.Millisecond
)

// scenarios lists all scenarios. In them the server asks for pauses of this length.
func scenarios(pause time.Duration) []scenario {
	var all []scenario
	for _, way := range []string{waySubprotocol, wayHeader, wayHello} {
		all = append(all, scenario{
			"auth-" + way, "the client gives its token by the way " + way, way,
			[]step{opensBy(way), greets(golden("snapshot")), shows()},
		})
	}
	all = append(all, states()...)
	all = append(all, returns()...)
	for code := 4001; code <= 4004; code++ {
		all = append(all, scenario{
			fmt.Sprintf("refused-%d", code), fmt.Sprintf("the client does not reconnect after %d", code), "",
			[]step{started(), leaves(code, 0), refused(code)},
		})
	}
	all = append(all, closings(pause)...)
	return append(all, commands(pause)...)
}

// changes returns changes of the conversation "lunch" alone.
func changes(version, total, unread int64) frame {
	return golden("changes").with("version", version).with("total", total).with("conversations", []any{lunch(version, unread)})
}

func lunch(version, unread int64) frame {
	return frame{
		"conversation_id": "lunch", "unread": unread, "mentions": 0, "first_unread_seq": 1, "read_seq": 0, "last_seq": unread,
		"level": "all", "category": "chat", "marked_unread": false, "version": version,
	}
}

// states are scenarios about what the client shows on one connection.
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
		{"changes", "changes replace the numbers and the listed conversations; a conversation that was left is gone", "", []step{
			started(), sends(golden("changes")), shows(), sends(golden("changes-left")), sends(changes(61, 7, 3)), shows(),
		}},
		{"stale", "older and repeated changes are ignored", "", []step{
			started(), sends(golden("changes")), shows(),
			sends(changes(58, 9, 5)), sends(golden("changes").with("total", 8)), pings(),
			sends(changes(60, 6, 2)), shows(),
		}},
		{"lost-update", "versions skip: the next changes repair what was lost", "", []step{
			started(), sends(changes(75, 9, 3)), shows(), sends(changes(74, 8, 2)), pings(), sends(changes(90, 7, 1)), shows(),
		}},
		{"unknown", "frames of unknown types and unknown fields are ignored", "", []step{
			opens(), greets(golden("snapshot").with("mood", "fine")), shows(),
			sends(frame{"t": "party", "version": 99, "total": 99}), pings(),
			sends(unknown), shows(),
		}},
		{"withdrawn", "a snapshot replaces everything, also with a lower version", "", []step{
			started(), greets(golden("snapshot-muted").with("version", 40)), shows(), sends(changes(41, 1, 1)), shows(),
		}},
		{"other-categories", "a snapshot of another epoch comes on the same connection, as after a token of other categories, and changes list nothing", "", []step{
			started(), greets(golden("snapshot-muted").with("epoch", "e1.9f86d081884c7d65")), shows(),
			sends(changes(70, 2, 2).with("epoch", "e1.9f86d081884c7d65").with("conversations", []any{})), shows(),
			cuts(), resumed(), sends(changes(71, 3, 3).with("epoch", "e1.9f86d081884c7d65")), shows(),
		}},
		{"large-snapshot", "a snapshot of 500 conversations", "", []step{
			opens(), greets(golden("snapshot").with("total", 500).with("conversations", many).with("more", true)), shows(),
		}},
		{"ping", "a frame ping is answered with pong, and a ping of WebSockets likewise", "", []step{
			started(), pings(), pingsBelow(), pings(),
		}},
		{"silence", "a connection without a sign of life is given up after somewhat more than two ping intervals", "", []step{
			opens(), greets(golden("snapshot").with("ping_ms", silence.Milliseconds())), shows(),
			fallsSilent(), resumed(), sends(changes(58, 7, 1)), shows(),
		}},
	}
}

// returns are scenarios about reconnecting with a state.
func returns() []scenario {
	return []scenario{
		{"resume", "after a cut, hello has the epoch and the version that the client holds", "", []step{
			started(), sends(golden("changes")), shows(),
			cuts(), resumed(), sends(changes(60, 6, 2)), shows(),
			cuts(), opens(), greets(changes(63, 5, 1)), shows(), cuts(), resumed(), pings(),
		}},
		{"gap", "after a gap the answer to hello is a snapshot: conversations that it does not list are gone", "", []step{
			started(), cuts(), opens(),
			greets(golden("snapshot").with("version", 900).with("total", 1).with("conversations", []any{lunch(900, 1)})), shows(),
			cuts(), resumed(), pings(),
		}},
		{"new-epoch", "a snapshot of a new epoch replaces everything, and hello then has that epoch", "", []step{
			started(), cuts(), opens(), greets(golden("snapshot-muted").with("epoch", "e2")), shows(),
			sends(changes(10, 1, 1).with("epoch", "e2")), shows(), cuts(), resumed(), pings(),
		}},
		{"stale-resume", "changes that were ignored do not change what hello says", "", []step{
			started(), sends(golden("changes")), shows(), sends(changes(58, 9, 5)), pings(), cuts(), resumed(), pings(),
		}},
		{"slow", "a client that was too slow is closed with 4103, without bye, and resumes", "", []step{
			started(), closes(4103), opens(), greets(changes(80, 9, 3)), shows(),
		}},
	}
}

// closings are scenarios about the end of connections and of tokens.
func closings(pause time.Duration) []scenario {
	return []scenario{
		{"back-off", "after 4100, 4101 and 4102 the client waits for reconnect_ms", "", []step{
			started(), leaves(4100, pause), resumed(), leaves(4101, pause), resumed(), leaves(4102, pause), resumed(), pings(),
		}},
		{"reconnect", "after 4200 and 4203 the client reconnects after reconnect_ms; after 4201 and codes of later servers too", "", []step{
			started(), leaves(4200, pause), resumed(), leaves(4201, 0), resumed(), leaves(4203, pause), resumed(), leaves(4299, 0), resumed(), pings(),
		}},
		{"bye", "bye tells when to reconnect even if the close frame is lost", "", []step{
			started(), says(4200, pause), cuts(), resumed(), pings(),
		}},
		{"bye-refused", "bye with 4001 is final even if the close frame is lost", "", []step{
			started(), says(4001, 0), cuts(), refused(4001),
		}},
		{"close-refused", "4001 in the close frame is final without bye", "", []step{
			started(), closes(4001), refused(4001),
		}},
		{"token-expired", "after 4202 the client reconnects with a fresh token", "", []step{
			started(), leaves(4202, 0), resumed(), pings(),
		}},
		{"token-refresh", "the client sends a fresh token before the old one expires, and stays connected", "", []step{
			opens(), greetsUntil(golden("snapshot"), lifetime), shows(), renews(),
			answers(golden("ok-auth").with("expires_at", "2126-11-02T11:15:00Z")),
			sends(changes(58, 7, 1)), shows(),
		}},
		{"token-unchecked", "if a fresh token cannot be checked now, the connection stays", "", []step{
			opens(), greetsUntil(golden("snapshot"), lifetime), shows(), renews(),
			answers(frame{"t": "error", "code": "unavailable", "message": "the token cannot be checked now"}),
			pings(), sends(changes(58, 7, 1)), shows(),
		}},
	}
}

// commands are scenarios about what the user does.
func commands(pause time.Duration) []scenario {
	ok := golden("ok")
	seq := json.Number("1851234567890123777")
	read := frame{"conversation_id": "design-crew", "up_to_seq": "42"}
	wantRead := frame{"conversation_id": "design-crew", "up_to_seq": 42}
	return []scenario{
		{"read", "a read is sent, its ok reported, and its effect comes as changes", "", []step{
			started(), does("read", read), gets("read", wantRead), answers(ok), done(), sends(golden("changes")), shows(),
		}},
		{"changes-before-ok", "the effect of a read comes before its ok", "", []step{
			started(), does("read", read), gets("read", wantRead), sends(golden("changes")), shows(), answers(ok), done(),
		}},
		{"read_all", "read_all is sent while connected", "", []step{
			started(), does("read_all", frame{}), gets("read_all", frame{}), answers(ok), done(),
			greets(golden("snapshot-muted").with("version", 58)), shows(),
		}},
		{"mark_unread", "mark_unread is sent", "", []step{
			started(), does("mark_unread", frame{"conversation_id": "Café ☕"}),
			gets("mark_unread", frame{"conversation_id": "Café ☕"}), answers(ok), done(),
			sends(golden("changes")), shows(),
		}},
		{"command-refused", "an error without retry_ms is final, and its effect is undone", "", []step{
			started(), does("mark_unread", frame{"conversation_id": "design-crew"}),
			gets("mark_unread", frame{"conversation_id": "design-crew"}), answers(golden("error-final")), failed("not_found"), shows(),
			pings(), sends(golden("changes")), shows(),
		}},
		{"read-refused", "a read of a conversation that the token does not show is refused finally, and its effect is undone", "", []step{
			started(), does("read", read), gets("read", wantRead), answers(golden("error-final")), failed("not_found"), shows(),
			pings(), sends(golden("changes")), shows(),
		}},
		{"command-retried", "after an error with retry_ms the command is sent again, not earlier", "", []step{
			started(), does("read", read), gets("read", wantRead), retries(pause), answers(ok), done(),
			sends(golden("changes")), shows(),
		}},
		{"answer-lost", "a command whose answer was lost is sent again after the reconnect, under its id", "", []step{
			started(), does("read", read), gets("read", wantRead), cuts(), resumed(), getsAgain(), answers(ok), done(),
			sends(golden("changes")), shows(),
		}},
		{"offline", "a read of the time without a connection is sent after the reconnect", "", []step{
			started(), leaves(4200, pause), does("read", read), resumed(), gets("read", wantRead), answers(ok), done(),
			sends(golden("changes")), shows(),
		}},
		{"large-seqs", "seqs above 2^53 are not rounded", "", []step{
			opens(), greets(golden("snapshot-large-seqs")), shows(),
			does("read", frame{"conversation_id": "snowflakes", "up_to_seq": seq.String()}),
			gets("read", frame{"conversation_id": "snowflakes", "up_to_seq": seq}), answers(ok), done(),
			greets(golden("snapshot-empty").with("version", 4)), shows(),
		}},
	}
}
