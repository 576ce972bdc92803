package tests

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/events"
)

// Redis loses its data, then its scripts, then its subscribers, and finally stops.
func phantomAfterCacheLoss(t *testing.T) {
	database, server := newDatabase(t), newRedis(t)
	p := roles(t, database, server, "--reconcile-interval=1s")
	options, err := redis.ParseURL(server.URL())
	if err != nil {
		t.Fatal(err)
	}
	admin := redis.NewClient(options)
	defer admin.Close()
	wipe := []func() error{
		func() error { return admin.FlushAll(t.Context()).Err() },
		func() error { return admin.ScriptFlush(t.Context()).Err() },
		func() error { return admin.ClientKillByFilter(t.Context(), "TYPE", "pubsub").Err() },
		func() error { return admin.ClientKillByFilter(t.Context(), "SKIPME", "yes").Err() },
		func() error { server.Kill(); return server.Restart(t.Context()) },
	}
	ann := connect(t, p["gateway"].url, "ann")
	ann.awaitTotal(0)
	position := ""
	for round, lose := range wipe {
		for seq := 1; seq <= 10; seq++ {
			if seq == 5 {
				if err := lose(); err != nil {
					t.Fatal(err)
				}
				wantTotal(t, p["api"], "ann", position, int64(10*round+4))
			}
			position = p["api"].mustPost(delivered("chat", 10*round+seq, `"ann"`))
		}
	}
	ann.awaitTotal(int64(10 * len(wipe)))
	wantTotal(t, p["api"], "ann", position, int64(10*len(wipe)))
}

// Redis is frozen for the rest of the test. Its connections stay open, so the gateway gets no error
// from them.
func halfOpenBus(t *testing.T) {
	database, redis := newDatabase(t), newRedis(t)
	p := roles(t, database, redis, "--reconcile-interval=1s")
	ann, bob := connect(t, p["gateway"].url, "ann"), connect(t, p["gateway"].url, "bob")
	p["api"].mustPost(delivered("chat", 1, `"ann","bob"`))
	ann.awaitTotal(1)
	bob.awaitTotal(1)

	if err := redis.Pause(); err != nil {
		t.Fatal(err)
	}
	p["api"].mustPost(delivered("chat", 2, `"ann","bob"`))
	ann.awaitTotal(2)
	bob.awaitTotal(2)
	bob.say(`{"t":"read","id":1,"conversation_id":"chat","up_to_seq":1}`)
	bob.awaitTotal(1)
	late := connect(t, p["gateway"].url, "ann")
	late.awaitTotal(2)
	p["api"].mustPost(delivered("chat", 3, `"ann","bob"`))
	for _, c := range []*client{ann, late} {
		c.awaitTotal(3)
	}
	bob.awaitTotal(2)

	if err := redis.Resume(); err != nil {
		t.Fatal(err)
	}
	p["api"].mustPost(delivered("chat", 4, `"ann"`))
	ann.awaitTotal(4)
	late.awaitTotal(4)
}

// slowLine is a proxy to Postgres that can delay one answer.
type slowLine struct {
	mu sync.Mutex
	// holding is the text for which hold waits, "" if hold was not called or the text has
	// come. When an answer contains it, held is closed, and the answer waits for release.
	holding       string
	held, release chan struct{}
}

// newSlowLine returns a line to a database, and its URL through the line.
func newSlowLine(t *testing.T, databaseURL string) (line *slowLine, through string) {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	socket := fmt.Sprintf("%s/.s.PGSQL.%s", query.Get("host"), query.Get("port"))
	var listen net.ListenConfig
	listener, err := listen.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	line = &slowLine{held: make(chan struct{}), release: make(chan struct{})}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			front, err := listener.Accept()
			if err != nil {
				return // the test has ended
			}
			var dialer net.Dialer
			back, err := dialer.DialContext(t.Context(), "unix", socket)
			if err != nil {
				_ = front.Close() // so the client gets an error
				continue
			}
			wg.Go(func() { _, _ = io.Copy(back, front); _ = back.Close() })
			wg.Go(func() { line.carry(front, back); _ = front.Close() })
		}
	})
	t.Cleanup(func() { _ = listener.Close(); wg.Wait() })

	host, port, _ := net.SplitHostPort(listener.Addr().String())
	query.Set("host", host)
	query.Set("port", port)
	query.Set("sslmode", "disable")
	u.RawQuery = query.Encode()
	return line, u.String()
}

// hold delays the next answer that contains text.
func (l *slowLine) hold(text string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.holding = text
}

func (l *slowLine) carry(front, back net.Conn) {
	buffer := make([]byte, 64<<10)
	for {
		n, err := back.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		hold := l.holding != "" && strings.Contains(string(buffer[:n]), l.holding)
		if hold {
			l.holding = ""
		}
		l.mu.Unlock()
		if hold {
			close(l.held)
			<-l.release
		}
		if _, err := front.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// The snapshot for a second device is read from Postgres, but its answer arrives after a newer
// state from the bus. Reconciliation is off.
func laggingReader(t *testing.T) {
	database, redis := newDatabase(t), newRedis(t)
	line, through := newSlowLine(t, database)
	back := serve(t, database, "--redis-url="+redis.URL(), "--roles=api,projector")
	front := serve(t, through, "--redis-url="+redis.URL(), "--roles=gateway", "--reconcile-interval=1h")

	phone := connect(t, front.url, "ann")
	back.mustPost(delivered("lagging", 1, `"ann"`))
	phone.awaitTotal(1)
	line.hold("lagging")
	tablet := connect(t, front.url, "ann")
	<-line.held
	back.mustPost(delivered("lagging", 2, `"ann"`), delivered("new", 1, `"ann"`))
	phone.awaitTotal(3)
	close(line.release)
	tablet.awaitTotal(3)
	tablet.mu.Lock()
	defer tablet.mu.Unlock()
	if tablet.unread["lagging"] != 2 || tablet.unread["new"] != 1 {
		t.Errorf("the tablet has %v unread", tablet.unread)
	}
}

// Clients connect one after the other while messages arrive. Each frame is
// checked: after n messages the version, the total and the last seq are all n.
// Reconciliation is off.
func subscribeRace(t *testing.T) {
	p := serve(t, newDatabase(t), "--reconcile-interval=1h")
	const messages, limit = 200, 60
	jwt := token(t, "ann")
	var story []string
	for seq := 1; seq <= messages; seq++ {
		story = append(story, delivered("race", seq, `"ann"`))
	}
	racing := publishers{t: t}
	racing.publish(p, each(story))
	over := make(chan struct{})
	go func() { racing.wg.Wait(); close(over) }()
	var clients []*client
	for going := true; going && len(clients) < limit; {
		clients = append(clients, connectWith(t, p.url, jwt))
		select {
		case <-over:
			going = false
		default:
		}
	}
	racing.await()
	for _, c := range clients {
		c.awaitTotal(messages)
		c.mu.Lock()
		for _, f := range c.told {
			if n := f.Total; f.Version != n || n > 0 && (len(f.Conversations) != 1 || f.Conversations[0].Unread != n || f.Conversations[0].LastSeq != n) {
				t.Errorf("a client got %+v", f)
			}
		}
		c.mu.Unlock()
	}
}

// Four publishers append without a pause while a server folds and another migration runs, as a
// later release may have.
func migrationUnderLoad(t *testing.T) {
	url := oneDatabase(t)
	pool, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	log, err := events.Open(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	over := make(chan struct{})
	published := make([]int64, 4)
	var wg sync.WaitGroup
	for i := range published {
		wg.Go(func() {
			for {
				select {
				case <-over:
					return
				default:
				}
				seq := published[i] + 1
				if _, err := log.Append(t.Context(), events.Event{
					ID: fmt.Sprint(i, "/", seq), Source: "test", Type: events.MessageDelivered,
					Data: events.Data{ConversationID: fmt.Sprint("room ", i), Seq: seq, UserIDs: []string{"ann", "bob", "cem"}},
				}); err != nil {
					t.Errorf("publisher %d: %v", i, err)
					return
				}
				published[i] = seq
			}
		})
	}
	stop := sync.OnceFunc(func() { close(over); wg.Wait() })
	defer stop()

	p := serve(t, url)
	ann := connect(t, p.url, "ann")
	ann.await("some messages", func() bool { return ann.total > 0 })
	conn, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	// Several statements sent in one message are one transaction.
	if _, err := conn.Exec(t.Context(), `
SELECT badged.wait_for_batches();
ALTER TABLE badged.users ADD COLUMN one_more bigint NOT NULL DEFAULT 0;
ALTER TABLE badged.conversations ADD COLUMN one_more text NOT NULL DEFAULT '';
CREATE INDEX ON badged.conversations (conversation_id);`); err != nil {
		t.Fatal(err)
	}
	ann.mu.Lock()
	before := ann.total
	ann.mu.Unlock()
	ann.await("more messages", func() bool { return ann.total > before })
	stop()

	want := map[string]int64{}
	var sum int64
	for i, n := range published {
		want[fmt.Sprint("room ", i)] = n
		sum += n
	}
	ann.awaitTotal(sum)
	position := p.mustPost(read("read", "room 0", int(published[0]), `"ann"`))
	everyReaderSays(t, url, p, "bob", position, want)
	delete(want, "room 0")
	everyReaderSays(t, url, p, "ann", position, want)
	var deadlocks int
	if err := conn.QueryRow(t.Context(), `SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()`).Scan(&deadlocks); err != nil || deadlocks != 0 {
		t.Errorf("%d deadlocks, %v", deadlocks, err)
	}
	wantStatus(t, publisherKey, http.MethodGet, p.url+"/readyz", "", "", http.StatusOK)
}
