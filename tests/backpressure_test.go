package tests

import (
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// refused publishes messages of a conversation until one is refused because folding is too far
// behind. It checks the refusal, and returns how many messages were accepted.
func refused(t *testing.T, p *process, conversation, users string) (accepted int) {
	t.Helper()
	for range polls(t, "a refusal") {
		status, header, answer := request(t, http.MethodPost, p.url+"/v1/events", "application/json", delivered(conversation, accepted+1, users))
		if status == http.StatusAccepted {
			accepted++
			continue
		}
		seconds, err := strconv.Atoi(header.Get("Retry-After"))
		if status != http.StatusTooManyRequests || err != nil || seconds < 1 || seconds > 60 ||
			header.Get("Content-Type") != "application/problem+json" || !strings.Contains(answer, "behind; nothing was stored") {
			t.Fatalf("while badges are behind a publisher got %d %v %s", status, header, answer)
		}
		break
	}
	return accepted
}

// While the projector is frozen, publishers are refused once folding is too far behind, but
// reads by apps are accepted. When the projector continues, every accepted event counts, no
// refused event counts, and a `badged load` that retries completes.
func TestPublishersAreRefusedWhileFoldingIsBehind(t *testing.T) {
	t.Parallel()
	file, want := makeTraffic(t)
	p := roles(t, newDatabase(t), newRedis(t), "--max-lag=1s")
	ann := connect(t, p["gateway"].url, "ann")
	total(t, p["api"], "ann", publish(t, p["api"], delivered("read", 1, `"ann"`)))
	ann.awaitTotal(1)

	p["projector"].signal(syscall.SIGSTOP)
	everyone, ids := users(64) // in every partition
	accepted := refused(t, p["api"], "room", ids)
	wantStatus(t, publisherKey, http.MethodGet, p["api"].url+"/readyz", "", "", http.StatusOK)
	ann.say(`{"t":"read","id":1,"conversation_id":"read","up_to_seq":1}`)
	ann.await("the answer to a read", func() bool { return ann.answers[1] == "ok" })
	for user := range want {
		everyone = append(everyone, user)
	}

	before := metric(t, metricsOf(t, p["api"]), "badged_publish_refused_total")
	load := exec.CommandContext(t.Context(), binary, "load", file, "--url="+p["api"].url, "--publisher-key="+publisherKey, "--json")
	load.Env = environment()
	out := &output{}
	load.Stdout, load.Stderr = out, out
	if err := load.Start(); err != nil {
		t.Fatal(err)
	}
	for range polls(t, "a refusal of the load") {
		if metric(t, metricsOf(t, p["api"]), "badged_publish_refused_total") > before {
			break
		}
		if ok, _ := out.has("{"); ok {
			t.Fatalf("the load was not refused: %s", out)
		}
	}
	p["projector"].signal(syscall.SIGCONT)
	if err := load.Wait(); err != nil {
		t.Fatalf("the load did not get its events in: %v\n%s", err, out)
	}
	ann.awaitTotal(0)
	for _, user := range everyone {
		n, loaded := want[user]
		if !loaded {
			n = int64(accepted)
		}
		wantTotal(t, p["api"], user, "0", n)
	}
}

// While no projector folds a partition, a request with an event for its users is refused as a
// whole, and other requests are accepted.
func TestOnePartitionBehindRefusesItsUsersOnly(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	conn := pgtest.Connect(t, shardOf(t, database, "ann"))
	const lockClass = 0x62616467 // the class of the locks on partitions
	ann, ben := "ann", "ben"
	partition := events.PartitionOf(ann, partitions)
	if partition == events.PartitionOf(ben, partitions) {
		t.Fatal("both users are in one partition")
	}
	pgtest.Exec(t, conn, `SELECT pg_advisory_lock($1, $2)`, lockClass, partition)
	p := serve(t, database, "--max-lag=1s")
	accepted := refused(t, p, "c", `"ann"`)
	position := publish(t, p, delivered("d", 1, `"ben"`))
	wantStatus(t, publisherKey, http.MethodPost, p.url+"/v1/events", "application/json", delivered("e", 1, `"ann","ben"`), http.StatusTooManyRequests)
	wantTotal(t, p, ben, position, 1)
	pgtest.Exec(t, conn, `SELECT pg_advisory_unlock_all()`)
	header, _ := p.awaitAnswer(http.MethodPost, "/v1/events", delivered("e", 1, `"ann","ben"`), http.StatusAccepted, "")
	position = header.Get("Badged-Position")
	wantTotal(t, p, ann, position, int64(accepted)+1)
	wantTotal(t, p, ben, position, 2)
}
