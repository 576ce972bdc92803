package tests

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/badged/badged/internal/devtest/pgtest"
)

// everywhere returns the decompressed contents of a dump of a database and of its archive.
func everywhere(t *testing.T, database, dir string) string {
	t.Helper()
	all := &bytes.Buffer{}
	for _, url := range stackOf(database) {
		dump := pgtest.Borrow(t).Run(t, nil, "pg_dump", url)
		all.Write(dump)
		inBytes(t, all, dump)
	}
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var content io.Reader = f
		if strings.HasSuffix(entry.Name(), ".zst") {
			z, err := zstd.NewReader(f)
			if err != nil {
				return err
			}
			defer z.Close()
			content = z
		}
		_, err = io.Copy(all, content)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// forgets fails the test if a dump of a database or its archive contains an id.
func forgets(t *testing.T, database, dir, id string) {
	t.Helper()
	all := everywhere(t, database, dir)
	if at := strings.Index(all, id); at >= 0 {
		t.Errorf("the id %s is still there: %s", id, all[max(0, at-200):min(len(all), at+len(id)+50)])
	}
}

// inBytes writes the values of type bytea in a dump: as they are, and also decompressed
// if they contain a zstd frame.
func inBytes(t *testing.T, all *bytes.Buffer, dump []byte) {
	t.Helper()
	z, err := zstd.NewReader(nil)
	if err != nil {
		t.Fatal(err)
	}
	defer z.Close()
	for _, digits := range regexp.MustCompile(`\\\\x([0-9a-f]{2,})`).FindAllSubmatch(dump, -1) {
		value, err := hex.DecodeString(string(digits[1]))
		if err != nil {
			t.Fatal(err)
		}
		all.Write(append(value, '\n'))
		for at := range value {
			if bytes.HasPrefix(value[at:], []byte{0x28, 0xb5, 0x2f, 0xfd}) {
				text, _ := z.DecodeAll(value[at:], nil) // keeps the part before an error
				all.Write(append(text, '\n'))
			}
		}
	}
}

// A user is exported and erased while the server runs. Afterwards a dump, the archive and the
// audit trail do not contain the id. Verifying and rebuilding find no difference before and after
// the erasure. Apps of the user are signed out, and a later event for the same id counts. Not
// parallel: a range is complete only once all older transactions have ended.
func TestEraseUser(t *testing.T) {
	const ghost = "ghost-4711"
	database, dir := newDatabase(t), filepath.Join(t.TempDir(), "archive")
	p := serve(t, database, "--reconcile-interval=1s", "--admin-keys=ops="+adminKey)
	app, ann := connect(t, p.url, ghost), connect(t, p.url, "ann")
	publish(t, p, delivered("lunch", 1, `"`+ghost+`","ann"`))
	app.awaitTotal(1)
	cutLog(t, database)
	must(t, archiving(database, dir)...)
	publish(t, p, delivered("lunch", 2, `"`+ghost+`","ann"`))
	publish(t, p, delivered("tea", 1, `"`+ghost+`"`))
	app.awaitTotal(3)
	ann.awaitTotal(2)

	run := func(args ...string) string {
		t.Helper()
		return must(t, append(args, "--database-url="+database)...)
	}
	agrees := func() {
		t.Helper()
		for _, from := range []string{"", "--archive=" + dir} {
			for _, args := range [][]string{{"verify"}, {"rebuild", "-q"}} {
				if from != "" {
					args = append(args, from)
				}
				if out := run(args...); !strings.Contains(out, "no difference") && !strings.Contains(out, "0 users corrected") && !strings.Contains(out, "no user") {
					t.Errorf("%v prints %s", args, out)
				}
			}
		}
		run("audit", "verify")
	}
	now := time.Now()
	stolen := issued(t, ghost, now.Add(-time.Hour))
	disconnect(t, p, ghost, `{"revoke_before":"`+now.Add(-time.Minute).Format(time.RFC3339)+`"}`)
	app.awaitEnd()
	app = connectWith(t, p.url, issued(t, ghost, now))
	app.awaitTotal(3)
	if out := run("user", "export", ghost, "--archive="+dir); strings.Count(out, `"kind":"event"`) != 2 || strings.Count(out, `"kind":"archived_event"`) != 1 || strings.Contains(out, `"ann"`) {
		t.Errorf("the export is\n%s", out)
	}
	const lacks = `archived events, of which some may name the user: no archive was given`
	if out, stderr, code := command(t, "user", "export", ghost, "--database-url="+database); code != 1 || strings.Count(out, `"kind":"event"`) != 2 ||
		!strings.Contains(out, `"lacks":["`) || !strings.Contains(out, lacks) || !strings.Contains(stderr, "badged: the export is incomplete: it does not include ") || !strings.Contains(stderr, lacks+": --archive DIR") {
		t.Errorf("without the archive, the export exits with %d:\n%s%s", code, out, stderr)
	}
	if status, answer := asAdmin(t, p, http.MethodGet, "v1/users/"+ghost+"/export", ""); status != http.StatusOK || !strings.Contains(answer, lacks) {
		t.Errorf("over HTTP, the export is %d\n%s", status, answer)
	}
	fails(t, 1, "--archive DIR", "user", "erase", ghost, "--database-url="+database)
	if !strings.Contains(everywhere(t, database, dir), ghost) {
		t.Error("the id was nowhere before")
	}
	near := issued(t, ghost, time.Now().Add(4*time.Second)) // an erasure revokes it, since the clock of its issuer may be ahead
	if out := run("user", "erase", ghost, "--archive="+dir); !strings.HasPrefix(out, "erased 2 conversations, ") || !strings.Contains(out, "in the archive, erased 0 events and removed the user from ") && !strings.Contains(out, "in the archive, erased 1 event") {
		t.Errorf("it prints %s", out)
	}
	forgets(t, database, dir, ghost)
	agrees()
	if code := app.awaitEnd(); code != 4001 {
		t.Errorf("the connection ends with %d", code)
	}
	later := time.Now().Add(5 * time.Second)
	fresh := serve(t, database)
	for _, token := range []string{stolen, issued(t, ghost, now), near} {
		refuses(t, p, token)
		refuses(t, fresh, token) // it has started after the erasure
	}
	app = connectWith(t, p.url, issued(t, ghost, later))
	app.awaitTotal(0)
	publish(t, p, delivered("lunch", 2, `"`+ghost+`","ann"`)) // a repetition
	app.awaitTotal(1)
	publish(t, p, delivered("lunch", 3, `"ann"`))
	ann.awaitTotal(3)
	agrees()
}

// Apps of an erased user that continue to send commands, during the erasure and afterwards and
// over each transport, do not store the user again. Their connections end, and all processes
// refuse their token.
func TestErasedUserStaysAway(t *testing.T) {
	t.Parallel()
	database := newDatabase(t)
	api := serve(t, database, "--admin-keys=ops="+adminKey, "--commands-per-second=10000")
	gateway := serve(t, database, "--commands-per-second=10000") // without a bus it learns of the erasure from the tables
	for door, erase := range map[string]func(user string){
		"the command": func(user string) { must(t, "user", "erase", user, "--database-url="+database) },
		"the API": func(user string) {
			wantStatus(t, adminKey, http.MethodPost, api.url+"/admin/v1/users/"+user+"/erase", "", "", http.StatusOK)
		},
	} {
		t.Run(door, func(t *testing.T) {
			user := "ghost-" + door[4:]
			token := issued(t, user, time.Now())
			app := connectWith(t, gateway.url, token)
			position := publish(t, api, delivered("lunch", 1, `"`+user+`"`))
			if total(t, gateway, user, position) != 1 {
				t.Fatal("nothing is unread")
			}
			send := func(p *process, n int) int { // ahead of the log, so that it would be stored as a claim
				t.Helper()
				status, _, _ := requestAs(t, token, http.MethodPost, p.url+"/v1/commands", "", fmt.Sprintf(`{"t":"read","id":1,"conversation_id":"lunch","up_to_seq":%d}`, n))
				return status
			}
			erased := make(chan struct{})
			go func() {
				defer close(erased)
				erase(user)
			}()
			for n := 2; ; n++ {
				_ = app.write(fmt.Sprintf(`{"t":"read","id":%d,"conversation_id":"lunch","up_to_seq":%d}`, n, n)) // fails once the server ends the connection
				first, second := send(api, n), send(gateway, n)
				select {
				case <-erased:
				default:
					continue
				}
				if first != http.StatusUnauthorized || second != http.StatusUnauthorized {
					t.Errorf("a command after the erasure is answered with %d, %d", first, second)
				}
				break
			}
			if code := app.awaitEnd(); code != 4001 {
				t.Errorf("the connection ends with %d", code)
			}
			refuses(t, gateway, token)
			forgets(t, database, t.TempDir(), user)
		})
	}
}

// Operators check in all ways whether anything of an erased user is left. No such read stores the
// id in the audit trail again.
func TestReadsOfAnErasedUserDoNotNameIt(t *testing.T) {
	t.Parallel()
	database := oneDatabase(t)
	p := serve(t, database, "--admin-keys=ops="+adminKey)
	total(t, p, "zoe", publish(t, p, delivered("lunch", 1, `"zoe"`)))
	look := func() {
		t.Helper()
		for _, args := range [][]string{{"user", "export", "zoe"}, {"user", "explain", "zoe"}, {"log", "--user=zoe"}} {
			must(t, append(args, "--database-url="+database)...)
		}
		if _, stderr, code := command(t, "user", "show", "zoe", "--database-url="+database); code != 0 && code != 3 {
			t.Errorf("user show exits with %d: %s", code, stderr)
		}
		for _, read := range []string{"export", "explain"} {
			if status, answer := asAdmin(t, p, http.MethodGet, "v1/users/zoe/"+read, ""); status != http.StatusOK {
				t.Errorf("%s: %d %s", read, status, answer)
			}
		}
	}
	trail := func() string { return must(t, "audit", "list", "--json", "--limit=500", "--database-url="+database) }
	look()
	if n := strings.Count(trail(), `"zoe"`); n != 6 {
		t.Errorf("%d reads of a user are recorded:\n%s", n, trail())
	}
	must(t, "user", "erase", "zoe", "--database-url="+database)
	look()
	after := trail()
	if strings.Contains(after, "zoe") {
		t.Errorf("the trail names an erased user:\n%s", after)
	}
	for action, want := range map[string]int{"user.export": 4, "user.show": 2, "user.explain": 4, "log.read": 2} {
		if n := strings.Count(after, `"action":"`+action+`"`); n != want {
			t.Errorf("%d records of %s, want %d", n, action, want)
		}
	}
}
