package projector_test

import (
	"context"
	"encoding/json"
	"net"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// names authenticates each client as the user that its token names.
type names struct{}

func (names) Authenticate(_ context.Context, token string) (gateway.Identity, error) {
	return gateway.Identity{UserID: token, ExpiresAt: time.Now().Add(time.Hour)}, nil
}

// The server of the example tells a client what is published while it is connected, and
// ends without an error.
func TestExampleServes(t *testing.T) {
	serving, folding, err := open(t.Context(), pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Close()
	defer folding.Close()
	l, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, serving, folding, names{}, l) }()

	read := func(conn *websocket.Conn) (f protocol.StateFrame) {
		_, b, err := conn.Read(t.Context())
		if err == nil {
			err = json.Unmarshal(b, &f)
		}
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	connect := func() (*websocket.Conn, protocol.StateFrame) {
		conn, _, err := websocket.Dial(t.Context(), "ws://"+l.Addr().String()+"/ws", &websocket.DialOptions{Subprotocols: []string{protocol.Subprotocol}})
		if err == nil {
			err = conn.Write(t.Context(), websocket.MessageText, []byte(`{"t":"hello","token":"ada"}`))
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.CloseNow() })
		return conn, read(conn)
	}
	conn, first := connect()
	for first.T == "bye" { // the gateway does not run yet
		conn, first = connect()
	}
	if first.T != "snapshot" || first.Total != 0 {
		t.Errorf("the first frame is %+v", first)
	}
	log, err := events.Open(t.Context(), serving)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := log.Append(t.Context(), events.Event{
		ID: "tea/1", Source: "chat", Type: events.MessageDelivered,
		Data: events.Data{ConversationID: "tea", Seq: 1, SenderID: "ben", UserIDs: []string{"ada"}},
	}); err != nil {
		t.Fatal(err)
	}
	if f := read(conn); f.T != "changes" || f.Total != 1 {
		t.Errorf("the second frame is %+v", f)
	}
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
