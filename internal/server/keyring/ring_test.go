package keyring

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/badged/badged/internal/devtest/snippets"
)

func digestOf(secret string) string {
	sum := sha256.Sum256([]byte(secret))
	return hex.EncodeToString(sum[:])
}

func nameOf(r *Ring, secret string) string {
	if k, valid := r.Find(secret); valid {
		return k.Name
	}
	return ""
}

func TestKeysOfFlags(t *testing.T) {
	r, errs := New(Config{
		Publishers: []string{
			"chat=plain secret",
			"push=sha256:" + digestOf("hashed"),
			"capitals=sha256:" + strings.ToUpper(digestOf("HASHED")),
			"padded=c2VjcmV0==",
			"spare=plain secret", // a key may have two names while it is renamed
			"twin=both",
		},
		Admins: []string{"ops=both"},
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for secret, want := range map[string]string{
		"plain secret":                 "spare",
		"hashed":                       "push",
		"HASHED":                       "capitals",
		"c2VjcmV0==":                   "padded",
		"both":                         "ops",
		"c2VjcmV0":                     "",
		"":                             "",
		"plain":                        "",
		"plain secret ":                "",
		"chat":                         "",
		"chat=plain secret":            "",
		"sha256:" + digestOf("hashed"): "", // the digest in the configuration is no key
		digestOf("hashed"):             "",
	} {
		if got := nameOf(r, secret); got != want {
			t.Errorf("%q is the key %q, want %q", secret, got, want)
		}
	}
	none, errs := New(Config{})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	for _, r := range []*Ring{none, nil} {
		if k, valid := r.Find(""); k != nil || valid || r.HasAdmins() {
			t.Errorf("no keys know %v, %t", k, valid)
		}
	}
}

func TestInvalidKeysOfFlags(t *testing.T) {
	const secret = "hunter2"
	const want = "want NAME=SECRET or NAME=sha256:HEX"
	const wantDigest = "sha256: must be followed by 64 hexadecimal digits"
	for _, test := range []struct {
		name  string
		specs []string
		want  string
	}{
		{"no name", []string{secret}, "key 1: " + want},
		{"an empty name", []string{"ok=x", "=" + secret}, "key 2: " + want},
		{"no secret", []string{"chat="}, "key 1: " + want},
		{"a line break in the name", []string{"chat=" + strings.Repeat("s", 40), "cr\nm=" + strings.Repeat("t", 40)}, "key 2: the name must not hold control characters"},
		{"nothing", []string{""}, "key 1: " + want},
		{"base64 without a name", []string{secret + "=="}, "key 1: " + want},
		{"a name twice", []string{"chat=" + secret, "push=x", "chat=y"}, "key chat is given twice"},
		{"a digest that is short", []string{"chat=sha256:" + digestOf(secret)[1:]}, "key chat: " + wantDigest},
		{"a digest that is long", []string{"chat=sha256:" + digestOf(secret) + "00"}, "key chat: " + wantDigest},
		{"a digest with other digits", []string{"chat=sha256:" + secret}, "key chat: " + wantDigest},
		{"an empty digest", []string{"chat=sha256:"}, "key chat: " + wantDigest},
	} {
		for flag, cfg := range map[string]Config{"--publisher-keys: ": {Publishers: test.specs}, "--admin-keys: ": {Admins: test.specs}} {
			_, errs := New(cfg)
			if got := fmt.Sprint(errs); got != "["+flag+test.want+"]" {
				t.Errorf("%s: errors are %s, want %s", test.name, got, flag+test.want)
			}
		}
	}
}

func TestKeysDoNotPrintTheirSecrets(t *testing.T) {
	keys, err := parseSpecs(Publisher, []string{"chat=hunter2"})
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v"} {
		if text := fmt.Sprintf(format, *keys[0]); strings.Contains(text, "hunter2") {
			t.Errorf("%s prints %s", format, text)
		}
	}
}

// fileOf writes a file of keys. SECRET(x) stands for the hash of x.
func fileOf(t *testing.T, path, text string) {
	t.Helper()
	for {
		before, rest, ok := strings.Cut(text, "SECRET(")
		if !ok {
			break
		}
		secret, after, _ := strings.Cut(rest, ")")
		text = before + Hash(secret) + after
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Every mistake of a file is named at once, with its line and its key, and without
// what may be a secret.
func TestMistakesOfFiles(t *testing.T) {
	const rest = ", kind: publisher, secret: SECRET(x)"
	const types = "message.delivered, conversation.read, message.recalled, message.changed, conversation.marked_unread, conversation.reset, conversation.seen, conversation.level_set, conversation.left, category.level_set, user.read_all, user.seen_all, user.left_all, room.joined, room.left, room.posted, room.recalled, room.changed, room.reset"
	for _, test := range []struct{ name, file, want string }{
		{"nothing", "# none\n", " is empty: want keys, a list; to have none, write keys: []"},
		{"no list", "keys: all", ":1: keys must be a list"},
		{"another thing", "- chat", ":1: want keys, a list"},
		{"a misspelt list", "key: []", ":1: field 1 is not known: want keys|:1: want keys, a list"},
		{"two documents", "keys: []\n---\nkeys: []", " has a second document, or something after the first"},
		{"broken YAML", "keys:\n - {name: 'chat", " is neither YAML nor JSON: yaml: line 2: found unexpected end of stream"},
		{"a text as a key", "keys:\n- hunter2", ":2: key 1: want name, kind, secret and what the key may do"},
		{"an empty key", "keys:\n- {}", ":2: key 1: name is required|:2: key 1: kind is required|:2: key 1: secret is required"},
		{
			"mistakes of several keys", "keys:\n- name: chat\n  kind: owner\n  secret: hunter2\n- {name: 'a b', kind: [reader], secret: 'sha256:ab'}",
			":3: key chat: kind must be publisher, reader or admin|:4: key chat: secret must be sha256: and 64 hexadecimal digits, and never the secret itself; `badged keys hash` reads a secret and prints that|" +
				":5: key 2: name must be letters, digits, dots, dashes and underscores, at most 63, and begin with a letter or digit|:5: key 2: kind must be text|" +
				":5: key 2: secret must be sha256: and 64 hexadecimal digits, and never the secret itself; `badged keys hash` reads a secret and prints that",
		},
		{"an unknown field", "keys:\n- {name: chat" + rest + ",\n   sorces: [a]}", ":3: key chat: field 4 is not known: want name, kind, secret, expires, sources, types, users, rooms, read, disconnect, rate, quota"},
		{"a field twice", "keys:\n- {name: chat" + rest + ", read: yes,\n   read: no}", ":3: key chat: read is given twice"},
		{"a time that would mean never", "keys:\n- {name: chat" + rest + ", expires: 0001-01-01T00:00:00Z}", ":2: key chat: expires must be a time such as 2027-01-31T23:59:59Z"},
		{"a date for a time", "keys:\n- {name: chat" + rest + ", expires: 2027-01-31}", ":2: key chat: expires must be a time such as 2027-01-31T23:59:59Z"},
		{
			"limits of nothing", "keys:\n- {name: chat" + rest + ", sources: [], rate: 0,\n   quota: 0.5, read: maybe}",
			":2: key chat: sources must have 1 to 100 entries, has 0; leave it out for no limit|:3: key chat: read must be yes or no|:2: key chat: rate must be a number of events a second, more than 0; leave it out for no limit|:3: key chat: quota must be a whole number of events a day, 1 or more; leave it out for no limit",
		},
		{"a rate that is no number", "keys:\n- {name: chat" + rest + ", rate: .nan}", ":2: key chat: rate must be a number of events a second, more than 0; leave it out for no limit"},
		{
			"patterns", "keys:\n- {name: chat" + rest + ", users: ['a*b', '', [c]]}",
			":2: key chat: users: \"a*b\": an asterisk may only be at the end|:2: key chat: users: must be text|:2: key chat: users: must be text",
		},
		{"a misspelt type", "keys:\n- {name: chat" + rest + ", types: [message.deliverd, message.*]}", ":2: key chat: types: \"message.deliverd\" matches no type of event that can be published: " + types},
		{"a type of badged's own", "keys:\n- {name: chat" + rest + ", types: conversation.expired}", ":2: key chat: types: \"conversation.expired\" matches no type of event that can be published: " + types},
		{
			"fields of other kinds", "keys:\n- {name: push, kind: reader, secret: SECRET(x), types: message.*, quota: 1}\n- {name: ops, kind: admin, secret: SECRET(y), users: [a*]}",
			":2: key push: a reader reads badges and publishes nothing: remove types|:2: key push: a reader reads badges and publishes nothing: remove quota|:3: key ops: an admin may do everything: remove users, or make the key a publisher's or reader's",
		},
		{"a name twice", "keys:\n- {name: chat" + rest + "}\n- {name: chat, kind: reader, secret: SECRET(y)}", ": key chat: another key has this name"},
		{"the name of a flag", "keys:\n- {name: flag" + rest + "}", ": key flag: another key has this name"},
		{"a secret twice", "keys:\n- {name: chat" + rest + "}\n- {name: push, kind: reader, secret: SECRET(x)}", ": key push: the key chat has the same secret: which of them counts would be unclear"},
		{"the secret of a flag", "keys:\n- {name: chat, kind: reader, secret: SECRET(of the flag)}", ": key chat: the key flag has the same secret: which of them counts would be unclear"},
		{"too many keys", "keys:\n" + strings.Repeat("- {}\n", 1001), ":2: the list has 1001 keys; at most 1000 are allowed"},
		{"a large file", strings.Repeat("# hunter2\n", 1<<17), " has more than 1048576 bytes"},
	} {
		t.Run(test.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "keys.yaml")
			fileOf(t, path, test.file)
			_, errs := New(Config{File: path, Publishers: []string{"flag=of the flag"}})
			var got []string
			for _, err := range errs {
				got = append(got, err.Error())
			}
			var want []string
			for part := range strings.SplitSeq(test.want, "|") {
				want = append(want, "--keys-file: "+path+part)
			}
			if !slices.Equal(got, want) {
				t.Errorf("mistakes:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		})
	}
	if _, errs := New(Config{File: "/nowhere/keys.yaml"}); fmt.Sprint(errs) != "[--keys-file: open /nowhere/keys.yaml: no such file or directory]" {
		t.Errorf("without the file: %v", errs)
	}
}

// A file may be YAML with anchors, or JSON.
func TestFiles(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	for name, file := range map[string]string{
		"YAML": "keys:\n- name: a\n  kind: publisher\n  secret: SECRET(x)\n  users: &ours [acme-*]\n- {name: b, kind: reader, secret: SECRET(y), users: *ours, expires: 2099-01-31T00:00:00+01:00}\n",
		"JSON": `{"keys":[{"name":"a","kind":"publisher","secret":"SECRET(x)","users":["acme-*"]},{"name":"b","kind":"reader","secret":"SECRET(y)","users":"acme-*","expires":"2099-01-30T23:00:00Z"}]}`,
	} {
		fileOf(t, path, file)
		registry := prometheus.NewRegistry()
		r, errs := New(Config{File: path, Registerer: registry})
		if len(errs) > 0 {
			t.Fatal(name, errors.Join(errs...))
		}
		if nameOf(r, "x") != "a" || nameOf(r, "y") != "b" || nameOf(r, "z") != "" || !r.HasAdmins() {
			t.Errorf("%s: the secrets are those of %q and %q", name, nameOf(r, "x"), nameOf(r, "y"))
		}
		b, _ := r.Find("y")
		if b.CheckRead("acme-ada") != nil || b.CheckRead("acme-ada", "acme").Error() != `the key b may not read the badge of "acme": its users are acme-*` {
			t.Errorf("%s: users are %v", name, b.users)
		}
		if got := testutil.ToFloat64(r.metrics.expires.WithLabelValues("reader", "b")); got != 4073497200 {
			t.Errorf("%s: it expires at %v", name, got)
		}
	}
}

func TestExpiry(t *testing.T) {
	now := time.Date(2027, 1, 31, 0, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "keys.yaml")
	fileOf(t, path, "keys: [{name: a, kind: reader, secret: SECRET(x), expires: 2027-01-31T00:00:01Z}]")
	r, errs := New(Config{File: path, Now: func() time.Time { return now }})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	if nameOf(r, "x") != "a" {
		t.Error("it has expired a second early")
	}
	now = now.Add(time.Second)
	if k, valid := r.Find("x"); k == nil || valid {
		t.Errorf("at its end the key is %v, valid %t", k, valid)
	}
	if got := testutil.ToFloat64(r.metrics.refused.WithLabelValues("reader", "a", "expired")); got != 1 {
		t.Errorf("%v requests are counted", got)
	}
}

// A changed file counts once two looks find it the same; a broken one leaves the
// keys as they were.
func TestWatching(t *testing.T) {
	path := filepath.Join(t.TempDir(), "keys.yaml")
	const one, two = "- {name: one, kind: publisher, secret: SECRET(1), rate: 0.1}\n", "- {name: two, kind: publisher, secret: SECRET(2)}\n"
	fileOf(t, path, "keys:\n"+one+two)
	var log bytes.Buffer
	registry := prometheus.NewRegistry()
	r, errs := New(Config{
		Publishers: []string{"flag=0"}, File: path, Registerer: registry,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var loads []Load
	if names := r.Follow(func(l Load) { loads = append(loads, l) }); !slices.Equal(names, []string{"flag", "one", "two"}) {
		t.Errorf("the first keys are %q", names)
	}
	check := func(when, want string) {
		t.Helper()
		got := nameOf(r, "0") + " " + nameOf(r, "1") + " " + nameOf(r, "2") + " " + nameOf(r, "3")
		if got != want {
			t.Errorf("%s: the keys are %q, want %q", when, got, want)
		}
	}
	check("at first", "flag one two ")
	first, _ := r.Find("1")
	if err := first.Spend(t.Context(), 5); err != nil {
		t.Fatal(err)
	}

	fileOf(t, path, "keys:\n"+one) // a part of what is being written
	r.file.Look(t.Context())
	check("after one look", "flag one two ")
	fileOf(t, path, "keys:\n"+one+"- {name: three, kind: reader, secret: SECRET(3)}\n")
	r.file.Look(t.Context())
	check("while it changes", "flag one two ")
	r.file.Look(t.Context())
	check("after two looks at the same", "flag one  three")
	if want := `msg="loaded keys" file=` + path + ` keys=2 added=[three] changed=[] removed=[two]`; !strings.Contains(log.String(), want) {
		t.Errorf("the log is\n%s, want %s", log.String(), want)
	}
	if n, err := testutil.GatherAndCount(registry, "badged_keys_requests_total"); err != nil || n != 3 {
		t.Errorf("%d keys have metrics: %v", n, err)
	}
	again, _ := r.Find("1")
	if err := again.Ready(t.Context()); err == nil {
		t.Error("loading the file has refilled the rate of a key")
	}

	log.Reset()
	fileOf(t, path, "keys:\n- {name: one}\n")
	for range 5 {
		r.file.Look(t.Context())
	}
	check("with a broken file", "flag one  three")
	if got := log.String(); strings.Count(got, "the file of keys has mistakes; the keys loaded before stay valid") != 1 || !strings.Contains(got, "keys.yaml:2: key one: secret is required") {
		t.Errorf("the log is\n%s", got)
	}
	if got := testutil.ToFloat64(r.metrics.current); got != 0 {
		t.Errorf("badged_keys_file_current is %v", got)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	r.file.Look(t.Context())
	r.file.Look(t.Context())
	check("without a file", "flag one  three")

	fileOf(t, path, "keys: []")
	r.Reload(t.Context()) // does not wait for a second look
	check("with an empty list", "flag   ")
	if got := testutil.ToFloat64(r.metrics.current); got != 1 {
		t.Errorf("badged_keys_file_current is %v", got)
	}
	if diff := cmp.Diff([]Load{
		{Keys: []string{"flag", "one", "three"}, Added: []string{"three"}, Removed: []string{"two"}},
		{Keys: []string{"flag"}, Removed: []string{"one", "three"}},
	}, loads); diff != "" {
		t.Errorf("changes (-want +got):\n%s", diff)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "keys.yaml")
		fileOf(t, path, "keys: [{name: a, kind: reader, secret: SECRET(x)}]")
		r, errs := New(Config{File: path})
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		go func() { _ = r.Run(t.Context()) }()
		fileOf(t, path, "keys: []")
		time.Sleep(time.Second) // of the bubble
		synctest.Wait()
		if nameOf(r, "x") != "" {
			t.Error("a second later the removed key is still valid")
		}
	})
}

func TestRateAndQuota(t *testing.T) {
	now := time.Date(2027, 1, 31, 23, 0, 0, 0, time.UTC)
	path := filepath.Join(t.TempDir(), "keys.yaml")
	fileOf(t, path, "keys:\n- {name: rate, kind: publisher, secret: SECRET(rate), rate: 2}\n- {name: quota, kind: publisher, secret: SECRET(quota), quota: 10}\n- {name: free, kind: publisher, secret: SECRET(free)}")
	r, errs := New(Config{File: path, Now: func() time.Time { return now }})
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	spend := func(key string, n int) time.Duration {
		t.Helper()
		k, _ := r.Find(key)
		err := k.Spend(t.Context(), n)
		if err == nil {
			return 0
		}
		over, ok := errors.AsType[*LimitError](err)
		if !ok {
			t.Fatal(err)
		}
		return over.RetryAfter
	}
	// Ten seconds are saved up. A large request is let through, and paid off.
	for i, step := range []struct {
		after time.Duration
		n     int
		wait  time.Duration
	}{{0, 19, 0}, {0, 41, 0}, {0, 1, 20500 * time.Millisecond}, {20 * time.Second, 1, 500 * time.Millisecond}, {500 * time.Millisecond, 1, 0}, {0, 1, 500 * time.Millisecond}, {time.Hour - 21*time.Second, 20, 0}, {0, 1, 500 * time.Millisecond}} {
		now = now.Add(step.after)
		if got := spend("rate", step.n); got != step.wait {
			t.Errorf("step %d: wait %s, want %s", i, got, step.wait)
		}
	}
	now = time.Date(2027, 1, 31, 23, 0, 0, 0, time.UTC)
	for i, step := range []struct {
		n    int
		wait time.Duration
	}{{7, 0}, {4, time.Hour}, {3, 0}, {1, time.Hour}} {
		if got := spend("quota", step.n); got != step.wait {
			t.Errorf("quota, step %d: wait %s, want %s", i, got, step.wait)
		}
	}
	now = now.Add(time.Hour)
	if got := spend("quota", 10); got != 0 {
		t.Errorf("the next day: wait %s", got)
	}
	if got := spend("free", 10_000); got != 0 {
		t.Errorf("without limits: wait %s", got)
	}
}

func TestFileOfThePage(t *testing.T) {
	block := snippets.With(t, "docs/access.md", "kind: publisher", "yaml")
	path := filepath.Join(t.TempDir(), "keys.yaml")
	if err := os.WriteFile(path, []byte(block.Text), 0o600); err != nil {
		t.Fatal(err)
	}
	now := func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
	if r, errs := New(Config{File: path, Now: now}); len(errs) > 0 || !r.HasAdmins() {
		t.Errorf("%s: %v", block, errs)
	}
}
