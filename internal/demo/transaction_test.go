package demo

import (
	"context"
	"encoding/json"
	"net/http"
	"testing"
)

// longState asks a demo for the state of its long transaction.
func (f *fixture) longState(t *testing.T) (s transactionState) {
	t.Helper()
	w := ask(t, f, http.MethodGet, "/demo/transaction", "")
	if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != http.StatusOK {
		t.Fatalf("answer is %d %s", w.Code, w.Body)
	}
	return s
}

// isOpen reports whether a transaction with that id is open.
func (f *fixture) isOpen(t *testing.T, id int64) bool {
	t.Helper()
	return f.count(t, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND backend_xid = ($1::bigint % (1::bigint << 32))::text::xid AND state = 'idle in transaction'`, id) == 1
}

// The page opens a transaction, which lasts until the page ends it, its time is over, or the demo
// stops. Pages are informed each time.
func TestLongTransaction(t *testing.T) {
	f := newFixture(t)
	if s := f.longState(t); s.OpenMS != 0 {
		t.Fatalf("at first it is open for %d ms", s.OpenMS)
	}
	p := openPage(t, serve(t, f))
	told := func() (s transactionState) {
		t.Helper()
		if err := json.Unmarshal([]byte(p.next("transaction")), &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	post := func(body string) {
		t.Helper()
		if w := ask(t, f, http.MethodPost, "/demo/transaction", body); w.Code != http.StatusOK {
			t.Fatalf("%s: %d %s", body, w.Code, w.Body)
		}
	}

	post(`{"open_ms":120000}`)
	first := told()
	if first.OpenMS <= 0 || !f.isOpen(t, first.TransactionID) {
		t.Errorf("%+v: the transaction is not open", first)
	}
	post(`{"open_ms":60000}`)
	if again := told(); again.TransactionID != first.TransactionID || again.OpenMS > 60_000 {
		t.Errorf("opened again: %+v, before %+v", again, first)
	}
	post(`{"open_ms":0}`)
	if s := told(); s.OpenMS != 0 || f.isOpen(t, first.TransactionID) {
		t.Errorf("%+v: the transaction is still open", s)
	}

	ctx, cancel := context.WithCancel(t.Context())
	stopped := make(chan error, 1)
	go func() { stopped <- f.Run(ctx) }()
	post(`{"open_ms":1}`)
	short := told()
	if s := told(); s.OpenMS != 0 || f.isOpen(t, short.TransactionID) {
		t.Errorf("%+v: the transaction is open for longer than 1 ms", s)
	}

	post(`{"open_ms":120000}`)
	last := told()
	cancel()
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	if f.isOpen(t, last.TransactionID) {
		t.Error("the demo has stopped, and its transaction is open")
	}
	if w := ask(t, f, http.MethodPost, "/demo/transaction", `{"open_ms":1}`); w.Code != http.StatusServiceUnavailable {
		t.Errorf("opening a transaction while the demo stops: %d %s", w.Code, w.Body)
	}
}

func TestLongTransactionRefuses(t *testing.T) {
	f := newFixture(t)
	for body, want := range map[string]string{
		`{"open_ms":-1}`:     `{"detail":"open_ms is 0 to 120000"}`,
		`{"open_ms":120001}`: `{"detail":"open_ms is 0 to 120000"}`,
		`open`:               `{"detail":"want {\"open_ms\": 10000}"}`,
	} {
		if w := ask(t, f, http.MethodPost, "/demo/transaction", body); w.Code != http.StatusBadRequest || w.Body.String() != want+"\n" {
			t.Errorf("%s: %d %s, want %s", body, w.Code, w.Body, want)
		}
	}
	if s := f.longState(t); s.OpenMS != 0 {
		t.Errorf("it is open for %d ms", s.OpenMS)
	}
}
