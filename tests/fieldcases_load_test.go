package tests

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// users returns n users, and the same users as JSON strings separated by commas.
func users(n int) (ids []string, asJSON string) {
	quoted := make([]string, n)
	for i := range n {
		ids = append(ids, fmt.Sprint("user-", i))
		quoted[i] = fmt.Sprintf("%q", ids[i])
	}
	return ids, strings.Join(quoted, ",")
}

// onlooker observes the databases of a stack while other sessions work in them.
type onlooker struct {
	t     *testing.T
	conns []*pgx.Conn // one to each database
}

func newOnlooker(t *testing.T, databaseURL string) *onlooker {
	t.Helper()
	o := &onlooker{t: t}
	for _, url := range stackOf(databaseURL) {
		o.conns = append(o.conns, pgtest.Connect(t, url))
	}
	return o
}

// hold runs a statement in a transaction of each database, and keeps the transactions open until
// release is called.
func (o *onlooker) hold(statement string) (release func()) {
	o.t.Helper()
	for _, conn := range o.conns {
		if _, err := conn.Exec(o.t.Context(), "BEGIN; "+statement); err != nil {
			o.t.Fatal(err)
		}
	}
	return func() {
		o.t.Helper()
		for _, conn := range o.conns {
			if _, err := conn.Exec(o.t.Context(), "ROLLBACK"); err != nil {
				o.t.Fatal(err)
			}
		}
	}
}

// noLockWaits fails the test if a session waits for a lock on rows or tables.
// It ignores the lock for extending a table.
func (o *onlooker) noLockWaits() {
	o.t.Helper()
	for _, conn := range o.conns {
		rows, err := conn.Query(o.t.Context(), `SELECT wait_event || ': ' || query FROM pg_stat_activity
WHERE datname = current_database() AND wait_event_type = 'Lock' AND wait_event <> 'extend'`)
		if err != nil {
			o.t.Fatal(err)
		}
		waits, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			o.t.Fatal(err)
		}
		for _, w := range waits {
			o.t.Errorf("a session waits for a lock on a %s", w)
		}
	}
}

// queryBadges returns the badges of up to 1,000 users, once they include a position, and the size of
// the answer.
func queryBadges[T any](t *testing.T, p *process, users []string, position string) (badges []T, size int) {
	t.Helper()
	body, err := json.Marshal(map[string]any{"user_ids": users, "at_least": position, "timeout": "30s"})
	if err != nil {
		t.Fatal(err)
	}
	status, _, answer := request(t, http.MethodPost, p.url+"/v1/badges/query", "application/json", string(body))
	var found struct{ Badges []T }
	if err := json.Unmarshal([]byte(answer), &found); err != nil || status != http.StatusOK {
		t.Fatalf("query: %d %.200s, %v", status, answer, err)
	}
	return found.Badges, len(answer)
}

// badge is a user's badge in Postgres.
type badge struct{ Total, Version int64 }

// totals returns the totals of up to 1,000 users.
func totals(t *testing.T, p *process, ids []string) (sums []int64) {
	t.Helper()
	badges, _ := queryBadges[badge](t, p, ids, "0")
	for _, b := range badges {
		sums = append(sums, b.Total)
	}
	return sums
}

// Badges of the members of a room of 3,000 users are read while messages to the room are folded.
// Then a lock that blocks all writers simulates a fold that does not end: badges can still be
// read and messages published.
func hotRoom(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	onlooker := newOnlooker(t, database)
	members, quoted := users(3000)
	const messages = 10
	room := func(from, to int) (story []string) {
		for seq := from; seq <= to; seq++ {
			story = append(story, delivered("room", seq, quoted))
		}
		return story
	}
	readAll := func() {
		totals(t, p, members[:1000])
		get(t, p.url+"/v1/users/"+members[0]+"/conversations", &struct{}{})
	}

	writing := publishers{t: t}
	writing.publish(p, each(room(1, messages)))
	over := make(chan struct{})
	go func() { writing.wg.Wait(); close(over) }()
	for going := true; going; {
		readAll()
		onlooker.noLockWaits()
		select {
		case <-over:
			going = false
		default:
		}
	}
	written := writing.await()
	for _, m := range members[:2] { // they may be on two shards
		total(t, p, m, written)
	}

	release := onlooker.hold(`LOCK TABLE badged.users, badged.conversations IN EXCLUSIVE MODE`)
	position := p.mustPost(room(messages+1, 2*messages)...)
	readAll()
	newcomer := connect(t, p.url, members[1])
	newcomer.await("a snapshot", func() bool { return newcomer.version > 0 })
	release()
	newcomer.awaitTotal(2 * messages)
	for partition := range partitions { // each is folded separately
		total(t, p, members[slices.IndexFunc(members, func(id string) bool { return events.PartitionOf(id, partitions) == partition })], position)
	}
	for group := range slices.Chunk(members, 1000) {
		for i, n := range totals(t, p, group) {
			if n != 2*messages {
				t.Fatalf("the total of %s is %d, want %d", group[i], n, 2*messages)
			}
		}
	}
}

// Ann marks everything read again and again while Bob gets messages. Bob is in Ann's partition, so
// her reads would block his events if reads blocked any.
func markAllReadStorm(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database)
	onlooker := newOnlooker(t, database)
	ids := usersIn(0, 2)
	ann, bob := ids[0], ids[1]
	const conversations = 10_000
	var backlog []string
	for i := range conversations {
		backlog = append(backlog, delivered(fmt.Sprint("room ", i), 1, fmt.Sprintf("%q", ann)))
	}
	position := p.mustPost(backlog...)
	wantTotal(t, p, ann, position, conversations)

	phone := connect(t, p.url, bob)
	phone.awaitTotal(0)
	var live []string
	for seq := 1; seq <= 100; seq++ {
		live = append(live, delivered("live", seq, fmt.Sprintf("%q,%q", ann, bob)))
	}
	storm := publishers{t: t}
	storm.publish(p, each(live))
	storm.publish(p, each([]string{event("read all", "user.read_all", fmt.Sprintf(`{"user_ids":[%q]}`, ann))}))
	over := make(chan struct{})
	go func() { storm.wg.Wait(); close(over) }()
	for going := true; going; {
		onlooker.noLockWaits()
		totals(t, p, []string{ann, bob})
		select {
		case <-over:
			going = false
		default:
		}
	}
	position = storm.await()
	phone.awaitTotal(100)
	everyReaderSays(t, database, p, bob, position, map[string]int64{"live": 100})

	// The order in the log decides how many messages came before the read.
	total(t, p, ann, position)
	var page struct {
		Conversations []struct {
			Unread  int64
			ReadSeq int64 `json:"read_seq"`
			LastSeq int64 `json:"last_seq"`
		}
	}
	get(t, p.url+"/v1/users/"+ann+"/conversations?limit=1", &page)
	c := page.Conversations[0]
	if c.LastSeq != 100 || c.Unread != c.LastSeq-c.ReadSeq {
		t.Errorf("of the last conversation %d are unread: read up to %d of %d", c.Unread, c.ReadSeq, c.LastSeq)
	}
	position = p.mustPost(delivered("after", 1, fmt.Sprintf("%q", ann)))
	want := map[string]int64{"after": 1}
	if c.Unread > 0 {
		want["live"] = c.Unread
	}
	everyReaderSays(t, database, p, ann, position, want)
}

// narrow returns an HTTP client with small buffers, so that the server soon detects that the client
// does not read.
func narrow() *http.Client {
	dialer := &net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		errControl := c.Control(func(fd uintptr) {
			if err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096); err == nil {
				err = syscall.SetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_MAXSEG, 536)
			}
		})
		if err == nil {
			err = errControl
		}
		return err
	}}
	return &http.Client{Transport: &http.Transport{DialContext: dialer.DialContext}}
}

// stall connects a client that says hello and then reads nothing.
func stall(t *testing.T, url, jwt string) *client {
	t.Helper()
	c, err := dial(t, url, jwt, narrow())
	if err == nil {
		err = c.write(`{"t":"hello"}`)
	}
	if err != nil {
		t.Fatalf("connect: %v", err)
	}
	return c
}

// wave returns the events that deliver message seq of each of many conversations.
func wave(conversations, seq int, user string) (story []string) {
	for i := range conversations {
		story = append(story, delivered(fmt.Sprint("a conversation with a long name ", i), seq, user))
	}
	return story
}

// A client does not read while all its conversations change thirty times. If the server closes the
// connection because the client is too slow, the client reconnects.
func queueOverflow(t *testing.T) {
	p := serve(t, newDatabase(t))
	slow := stall(t, p.url, token(t, "ann"))
	const conversations, rounds = 300, 30
	position := ""
	for seq := 1; seq <= rounds; seq++ {
		position = p.mustPost(wave(conversations, seq, `"ann"`)...)
		total(t, p, "ann", position) // each wave is on the bus before the next
	}
	slow.listen()
	for done := false; !done; {
		slow.mu.Lock()
		held, changed, err := slow.total, slow.changed, slow.err
		slow.mu.Unlock()
		switch {
		case held == conversations*rounds:
			done = true
		case err != nil:
			// The connection may be cut within a frame, and then no close frame follows.
			if !strings.Contains(err.Error(), "4103") && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Fatalf("the connection ended: %v", err)
			}
			slow = slow.resume(p.url)
		default:
			<-changed
		}
	}
	slow.mu.Lock()
	defer slow.mu.Unlock()
	if n := len(slow.told); n > rounds/2 {
		t.Errorf("%d states were sent, so %d changes did not pile up", n, rounds)
	}
	for id, n := range slow.unread {
		if n != rounds {
			t.Errorf("%d of %s are unread, want %d", n, id, rounds)
		}
	}
	if n := len(slow.unread); n != conversations {
		t.Errorf("%d conversations are held, want %d", n, conversations)
	}
}

// 100 clients do not read. The server must not store all frames for each client: 30 frames of about
// 100 KB for each would be 0.3 GB.
func slowClientMemory(t *testing.T) {
	p := serve(t, newDatabase(t), "--max-user-connections=0")
	heap := func() float64 {
		page := metricsOf(t, p)
		return metric(t, page, "go_memstats_heap_inuse_bytes")
	}
	awake := connect(t, p.url, "bob")
	jwt := token(t, "ann")
	for range 100 {
		stall(t, p.url, jwt)
	}
	before, limit := heap(), 0.0
	const conversations, rounds = 400, 30
	for seq := 1; seq <= rounds; seq++ {
		position := p.mustPost(wave(conversations, seq, `"ann"`)...)
		total(t, p, "ann", position)
		limit = max(limit, heap())
	}
	t.Logf("the heap was %.0f MB, and %.0f MB at most", before/1e6, limit/1e6)
	if limit-before > 150e6 {
		t.Errorf("the heap grew from %.0f MB to %.0f MB", before/1e6, limit/1e6)
	}
	p.mustPost(delivered("chat", 1, `"bob"`)) // bob gets it at once
	awake.awaitTotal(1)
}

// A stopping server closes three hundred connections and says when to reconnect. The first frame
// after the reconnect has the messages published meanwhile, and only what has changed.
func restartHerd(t *testing.T) {
	database := newDatabase(t)
	p := serve(t, database, "--drain-timeout=1m")
	address := strings.TrimPrefix(p.url, "http://")
	const conversations, herdSize = 3, 300
	ids, quoted := users(herdSize / 3) // three devices each
	for i := range conversations {
		p.mustPost(delivered(fmt.Sprint("room ", i), 1, quoted))
	}
	herd := make([]*client, herdSize)
	for i := range herd {
		herd[i] = connect(t, p.url, ids[i%len(ids)])
	}
	for _, c := range herd {
		c.awaitTotal(conversations)
	}

	p.mustStop()
	for _, c := range herd {
		<-c.ended
		var bye struct {
			T           string `json:"t"`
			Code        int    `json:"code"`
			ReconnectMS int64  `json:"reconnect_ms"`
		}
		if err := json.Unmarshal([]byte(c.frames[len(c.frames)-1]), &bye); err != nil || bye.T != "bye" || bye.Code != 4200 || bye.ReconnectMS < 1 {
			t.Fatalf("the last frame is %s", c.frames[len(c.frames)-1])
		}
	}
	byShard := map[string][]string{}
	for _, id := range ids {
		at := shardOf(t, database, id)
		byShard[at] = append(byShard[at], strconv.Quote(id))
	}
	for at, some := range byShard {
		sql(t, at, `SELECT badged.publish($1::text::jsonb)`, delivered("room 0", 2, strings.Join(some, ",")))
	}

	p = launch(t, nil, "serve", "--listen="+address, "--database-url="+database)
	var returning sync.WaitGroup
	for i := range herd {
		returning.Go(func() {
			back, err := herd[i].again(p.url)
			if err != nil {
				t.Errorf("client %d did not come back: %v", i, err)
				return
			}
			herd[i] = back
		})
	}
	returning.Wait()
	if t.Failed() {
		return
	}
	for _, c := range herd {
		c.awaitTotal(conversations + 1)
		c.mu.Lock()
		if first := c.told[0]; first.T != "changes" || len(first.Conversations) > 1 {
			t.Errorf("the first frame is %s", c.frames[0])
		}
		c.mu.Unlock()
	}
	p.mustPost(delivered("room 1", 2, quoted))
	for _, c := range herd {
		c.awaitTotal(conversations + 2)
	}
}
