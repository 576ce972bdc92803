package tests

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/vendors"
)

var pushKills = flag.Int("push-kills", 4, "how often TestPhonesEndRightAcrossKills kills the server, Postgres or a vendor, in turn")

// closedPhones is a fake push vendor of each kind, and phones whose apps are closed.
type closedPhones struct {
	apns    *vendors.APNs
	fcm     *vendors.FCM
	web     *vendors.WebPush
	config  string
	bundle  string // certificates that the server trusts
	phones  []phoneOf
	secrets []string
}

// phoneOf is a phone and the user who has it.
type phoneOf struct {
	*vendors.Phone
	name, user, device string
}

func newClosedPhones(t *testing.T) *closedPhones {
	t.Helper()
	f := &closedPhones{apns: vendors.NewAPNs(t), fcm: vendors.NewFCM(t), web: vendors.NewWebPush(t)}
	f.config = vendors.WriteConfig(t, map[string]map[string]any{"ios": f.apns.Entry(), "android": f.fcm.Entry(), "web": f.web.Entry()})
	certificate := readFile(t, f.web.CAFile)
	f.bundle = filepath.Join(t.TempDir(), "bundle.pem")
	writeFile(t, f.bundle, certificate)
	return f
}

func (f *closedPhones) vendors() map[string]*vendors.Vendor {
	return map[string]*vendors.Vendor{"apns": &f.apns.Vendor, "fcm": &f.fcm.Vendor, "webpush": &f.web.Vendor}
}

// serve starts a server that pushes to the vendors.
func (f *closedPhones) serve(t *testing.T, database string, args ...string) *process {
	t.Helper()
	return launch(t, func(c *exec.Cmd) { c.Env = append(c.Env, "SSL_CERT_FILE="+f.bundle) }, append([]string{
		"serve", "--listen=127.0.0.1:0", "--migrate", "--database-url=" + database, "--push-config=" + f.config, "--log-level=debug",
	}, args...)...)
}

// register gives a user a phone of each vendor.
func (f *closedPhones) register(t *testing.T, p *process, user string) {
	t.Helper()
	apns, fcm, web := fmt.Sprintf("%x", "apns "+user), "fcm:token-of-"+user, "browser-of-"+user
	for device, registration := range map[string]any{
		"iphone":  map[string]string{"platform": "apns", "app": "ios", "token": apns},
		"android": map[string]string{"platform": "fcm", "app": "android", "token": fcm},
		"browser": map[string]any{"platform": "webpush", "app": "web", "subscription": f.web.Subscribe(t, web)},
	} {
		body, err := json.Marshal(registration)
		if err != nil {
			t.Fatal(err)
		}
		status, _, answer := requestAs(t, token(t, user), http.MethodPut, p.url+"/v1/users/"+user+"/devices/"+device, "application/json", string(body))
		if status != http.StatusCreated {
			t.Fatalf("register %s of %s: %d %s", device, user, status, answer)
		}
		for _, secret := range []string{apns, fcm, web} {
			if strings.Contains(answer, secret) {
				t.Errorf("the answer has the token: %s", answer)
			}
		}
	}
	f.phones = append(f.phones,
		phoneOf{f.apns.Phone(apns), "apns", user, "iphone"},
		phoneOf{f.fcm.Phone(fcm), "fcm", user, "android"},
		phoneOf{f.web.Phone(web), "webpush", user, "browser"})
	f.secrets = append(f.secrets, apns, fcm, web)
}

// awaitNumbers waits until all phones show the totals of the tables.
func (f *closedPhones) awaitNumbers(t *testing.T, p *process, position string) {
	t.Helper()
	want := map[string]int64{}
	for _, phone := range f.phones {
		if _, ok := want[phone.user]; !ok {
			want[phone.user] = total(t, p, phone.user, position)
		}
	}
	var wrong string
	defer func() {
		if t.Failed() {
			t.Log(wrong)
			for name, v := range f.vendors() {
				t.Logf("%s: %v", name, v.Violations())
			}
			for user := range want {
				_, _, devices := request(t, http.MethodGet, p.url+"/v1/users/"+user+"/devices", "", "")
				t.Log(user, devices)
			}
		}
	}()
	for range polls(t, "all phones to show the totals of the tables") {
		wrong = ""
		for _, phone := range f.phones {
			if n, ok := phone.Number(); !ok || n != want[phone.user] {
				wrong += fmt.Sprintf("%s of %s shows %d (%t), want %d\n", phone.device, phone.user, n, ok, want[phone.user])
			}
		}
		if wrong == "" {
			return
		}
	}
}

// check fails the test if a vendor got an invalid request, or if the output of a server contains a
// token.
func (f *closedPhones) check(t *testing.T, servers ...*process) {
	t.Helper()
	for name, v := range f.vendors() {
		for _, wrong := range v.Violations() {
			t.Errorf("%s complains: %s", name, wrong)
		}
	}
	for _, p := range servers {
		text := p.out.String()
		for _, secret := range f.secrets {
			if strings.Contains(text, secret) {
				t.Errorf("the log has the token %s", secret)
			}
		}
	}
}

// Reading on one device clears the number on the others, and an alert includes the number.
func TestClosedPhonesFollow(t *testing.T) {
	f, database := newClosedPhones(t), newDatabase(t)
	p := f.serve(t, database, "--outbound-keys=a="+"AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=")
	f.register(t, p, "ada")
	f.awaitNumbers(t, p, "0")
	f.awaitNumbers(t, p, publish(t, p, event("lunch/1", "message.delivered",
		`{"conversation_id":"lunch","seq":1,"user_ids":["ada"],"notification":{"title":"Ben","body":"Pizza?","data":{"url":"/lunch"}}}`)))
	for _, phone := range f.phones {
		for range polls(t, phone.name+" to show the notification") {
			if alerts := phone.Alerts(); len(alerts) == 1 {
				if a := alerts[0]; a.Title != "Ben" || a.Body != "Pizza?" || a.Badged.Number != 1 || a.Badged.Data["url"] != "/lunch" {
					t.Errorf("%s shows %+v", phone.name, a)
				}
				break
			}
		}
	}
	f.awaitNumbers(t, p, publish(t, p, event("lunch/read", "conversation.read", `{"conversation_id":"lunch","user_ids":["ada"],"up_to_seq":1}`)))
	for _, phone := range f.phones {
		if n, _ := phone.Number(); n != 0 {
			t.Errorf("%s shows %d, want 0", phone.name, n)
		}
	}
	// If a vendor answers that a device is unregistered, the device gets no more pushes.
	f.apns.Script(func(string) *vendors.Fault { return &vendors.Fault{Status: 410, Reason: "Unregistered"} })
	publish(t, p, delivered("lunch", 2, `"ada"`))
	p.awaitAnswer(http.MethodGet, "/v1/users/ada/devices/iphone", "", http.StatusNotFound, "")
	f.check(t, p)
}

// The server, Postgres and vendors are killed in turn while pushes are sent. Vendors refuse some
// pushes, lose some, and deliver some without an answer. In the end all phones show the totals of the
// tables.
func TestPhonesEndRightAcrossKills(t *testing.T) {
	const users = 8
	postgres := pgtest.NewServer(t)
	f, database := newClosedPhones(t), postgres.NewDB(t, migrated())
	p := f.serve(t, database)
	servers := []*process{p}
	for i := range users {
		f.register(t, p, fmt.Sprintf("user%d", i))
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var mu sync.Mutex
	random := rand.New(rand.NewPCG(seed, 0))
	draw := func(n int) int {
		mu.Lock()
		defer mu.Unlock()
		return random.IntN(n)
	}
	faults := []vendors.Fault{
		{Reset: true, Deliver: true},
		{Reset: true},
		{Status: 503, Reason: "UNAVAILABLE"},
		{GoAway: true},
		{Status: 500, Reason: "INTERNAL", Deliver: true},
	}
	for _, v := range f.vendors() {
		v.Script(func(string) *vendors.Fault {
			if draw(8) > 0 {
				return nil
			}
			return &faults[draw(len(faults))]
		})
	}
	position, seq := "0", 0
	say := func(body string) {
		for range polls(t, "an event to be taken") { // Postgres may be unavailable
			status, header, _ := request(t, http.MethodPost, p.url+"/v1/events", "application/cloudevents+json", body)
			if status == http.StatusAccepted {
				position = header.Get("Badged-Position")
				return
			}
		}
	}
	for kill := range *pushKills {
		came := f.fcm.Came()
		for range 5 {
			seq++
			names := make([]string, 0, users)
			for i := range users {
				if draw(3) > 0 || len(names) == 0 {
					names = append(names, fmt.Sprintf("%q", fmt.Sprintf("user%d", i)))
				}
			}
			all := strings.Join(names, ",")
			if draw(3) == 0 {
				say(event(fmt.Sprintf("read/%d", seq), "conversation.read", fmt.Sprintf(`{"conversation_id":"team","user_ids":[%s],"up_to_seq":%d}`, all, seq)))
			} else {
				say(delivered("team", seq, all))
			}
		}
		select { // pushes are under way
		case <-came:
		case <-time.After(patience):
			t.Fatal("waited in vain for a push")
		}
		switch kill % 3 {
		case 0:
			p.kill()
			p = f.serve(t, database)
			servers = append(servers, p)
		case 1:
			postgres.Kill()
			restart(t, postgres)
		case 2:
			v := []*vendors.Vendor{&f.apns.Vendor, &f.fcm.Vendor, &f.web.Vendor}[draw(3)]
			v.Kill()
			say(delivered("team", seq, `"user0"`)) // has come before
			v.Restart(t)
		}
	}
	for _, v := range f.vendors() {
		v.Script(nil)
	}
	f.awaitNumbers(t, p, position)
	repeats := 0
	for _, phone := range f.phones {
		repeats += phone.Repeats()
	}
	t.Logf("%d kills, %d pushes, %d of them repeats", *pushKills, len(f.apns.Pushes())+len(f.fcm.Pushes())+len(f.web.Pushes()), repeats)
	f.check(t, servers...)
}

// A notification disappears from the other devices once its message was read or recalled.
// Notifications of other messages stay.
func TestShownAlertsAreRetracted(t *testing.T) {
	f := newClosedPhones(t)
	p := f.serve(t, newDatabase(t))
	f.register(t, p, "ada")
	f.awaitNumbers(t, p, "0")
	say := func(conversation string, seq int) string {
		return event(fmt.Sprint(conversation, "/", seq), "message.delivered",
			fmt.Sprintf(`{"conversation_id":%q,"seq":%d,"user_ids":["ada"],"notification":{"title":%q}}`, conversation, seq, fmt.Sprint(conversation, " ", seq)))
	}
	shown := func(what string, want ...string) {
		t.Helper()
		for _, phone := range f.phones {
			for range polls(t, phone.name+" to show "+what) {
				titles := []string{}
				for _, a := range phone.Alerts() {
					titles = append(titles, a.Title)
				}
				slices.Sort(titles)
				if slices.Equal(titles, want) {
					break
				}
			}
		}
	}
	for seq := 1; seq <= 10; seq++ { // more than one push retracts
		publish(t, p, say("lunch", seq))
	}
	publish(t, p, say("team", 1))
	publish(t, p, say("tea", 1))
	shown("all", "lunch 1", "lunch 10", "lunch 2", "lunch 3", "lunch 4", "lunch 5", "lunch 6", "lunch 7", "lunch 8", "lunch 9", "tea 1", "team 1")
	publish(t, p, event("tea/1/recalled", "message.recalled", `{"conversation_id":"tea","user_ids":["ada"],"seq":1}`))
	shown("what was not recalled", "lunch 1", "lunch 10", "lunch 2", "lunch 3", "lunch 4", "lunch 5", "lunch 6", "lunch 7", "lunch 8", "lunch 9", "team 1")
	f.awaitNumbers(t, p, publish(t, p, event("lunch/read", "conversation.read", `{"conversation_id":"lunch","user_ids":["ada"],"up_to_seq":10}`)))
	shown("what is unread", "team 1")
	f.awaitNumbers(t, p, publish(t, p, say("tea", 2)))
	shown("the next", "tea 2", "team 1")
	f.check(t, p)
}
