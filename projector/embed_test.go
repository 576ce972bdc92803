package projector_test

import (
	"context"
	"encoding/json"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/badged/badged/events"
	"github.com/badged/badged/gateway"
	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/partition/replay"
	"github.com/badged/badged/internal/user/expiry"
	"github.com/badged/badged/projector"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
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

func gatewayConfig(pool *pgxpool.Pool, log *events.Log, bus pubsub.Bus) gateway.Config {
	return gateway.Config{Badges: badges.NewReader(pool, log), Commands: commands{}, Authenticator: names{}, Bus: bus, PartitionOf: log.Route}
}

// What is embedded fails, instead of ending the process, if it runs twice.
func TestRunOnce(t *testing.T) {
	serving, folding, err := open(t.Context(), pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	defer serving.Close()
	defer folding.Close()
	log, err := events.Open(t.Context(), serving)
	if err != nil {
		t.Fatal(err)
	}
	bus := pubsub.NewMemory()
	defer bus.Close()
	p, err := projector.New(projector.Config{Pool: folding, Log: log, Bus: bus})
	if err != nil {
		t.Fatal(err)
	}
	g, err := gateway.New(gatewayConfig(serving, log, bus))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for i, run := range []func(context.Context) error{p.Run, g.Run, p.Run, g.Run} {
		if err := run(ctx); (err != nil) != (i > 1) || err != nil && !strings.Contains(err.Error(), "Run was called before") {
			t.Errorf("run %d ended with %v", i, err)
		}
	}
}

// Settings that cannot work are refused by name.
func TestNewRefusesNegativeSettings(t *testing.T) {
	pool, log, bus := new(pgxpool.Pool), new(events.Log), pubsub.NewMemory()
	defer bus.Close()
	for want, newPart := range map[string]func() error{
		"projector: MaxBatch is negative: -1": func() error {
			_, err := projector.New(projector.Config{Pool: pool, Log: log, Bus: bus, MaxBatch: -1})
			return err
		},
		"gateway: PingInterval is negative: -1s": func() error {
			cfg := gatewayConfig(pool, log, bus)
			cfg.PingInterval = -time.Second
			_, err := gateway.New(cfg)
			return err
		},
		"sampler: Users is negative: -1": func() error {
			_, err := replay.NewSampler(replay.SamplerConfig{Pool: pool, Log: log, Owner: new(projector.Projector), Users: -1})
			return err
		},
		"expiry: Pause is negative: -1s": func() error {
			_, err := expiry.New(expiry.Config{Pool: pool, Log: new(projector.Projector), Layouts: log, Pause: -time.Second})
			return err
		},
		"expiry: an events.Log refuses what a sweep appends": func() error {
			_, err := expiry.New(expiry.Config{Pool: pool, Log: log, Layouts: log})
			return err
		},
	} {
		if err := newPart(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}
