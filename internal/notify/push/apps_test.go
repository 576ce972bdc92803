package push

import (
	"context"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"maps"
	"math/big"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/devtest/vendors"
	"github.com/badged/badged/internal/notify/outbound"
)

// short is an RSA key of 512 bits, which signs nothing.
const short = `-----BEGIN PRIVATE KEY-----
MIIBVQIBADANBgkqhkiG9w0BAQEFAASCAT8wggE7AgEAAkEArjAhrPP/JIi8nUBY
meBNcMYwKHKbyLZKPG2nHxPtOOUSxPSWiK7dDT2iW6AzChh0fwX2pGdlDcBSq+c8
cc/CXQIDAQABAkAMJMzkOuqJyIKlz+udZrbfauHGoB7eQl8wkVB6aTA7rBdGH/62
6b4n/JxA2GyzhmdspSwApGTYRkZ1uUdSlCABAiEA3SeWJ+oFPb+fsdY7gZjkEgpV
BfqYZXialzgAUgiSuAECIQDJoh3IYnYD1fNQwTH0n+10KJHAUe6EDjiSuBraSFLq
XQIgYsPPFzw34v+0/eLC6HmzQStEFUt4y7g0sdvcqMYTYAECIQCg2wc9hGc32ihZ
RTcQO8HYiED2l6ZbjWjOi7dIaqhTNQIhAJZkx57TBOkA+DCdo550X0lRc2zJtlsY
LMY9XyFpmkkT
-----END PRIVATE KEY-----
`

func contextWithDeadline(t *testing.T) (context.Context, context.CancelFunc) {
	t.Helper()
	return context.WithTimeout(t.Context(), 200*time.Millisecond)
}

func certificateOf(app string, ends time.Time) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-48 * time.Hour), NotAfter: ends,
		Subject: pkix.Name{ExtraNames: []pkix.AttributeTypeAndValue{{Type: userID, Value: app}}},
	}
}

// without returns an entry without fields, and with others.
func without(entry map[string]any, with map[string]any, fields ...string) map[string]any {
	entry = maps.Clone(entry)
	for _, field := range fields {
		delete(entry, field)
	}
	maps.Copy(entry, with)
	return entry
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	a, f, w := vendors.NewAPNs(t).Entry(), vendors.NewFCM(t).Entry(), vendors.NewWebPush(t).Entry()
	next := time.Now().Add(time.Hour)
	ours, others := certificate(t, "com.example.chat", next), certificate(t, "com.example.other", next)
	old := certificate(t, "com.example.chat", time.Now().Add(-24*time.Hour))
	broken := filepath.Join(t.TempDir(), "broken.pem")
	if err := os.WriteFile(broken, []byte("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	encrypted := filepath.Join(t.TempDir(), "encrypted.p8")
	if err := os.WriteFile(encrypted, []byte("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	// account is the entry of FCM with other fields in the service account.
	account := func(with map[string]any) map[string]any {
		text, err := os.ReadFile(f["service_account_file"].(string))
		if err != nil {
			t.Fatal(err)
		}
		var fields map[string]any
		if err := json.Unmarshal(text, &fields); err != nil {
			t.Fatal(err)
		}
		if text, err = json.Marshal(without(fields, with)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "account.json")
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
		return without(f, map[string]any{"service_account_file": file})
	}
	byKey := []string{"key_file", "key_id", "team_id"}
	type fields = map[string]any
	for _, tt := range []struct {
		name  string
		entry map[string]any
		want  string // in the error; empty if there is none
	}{
		{"APNs with a key", a, ""},
		{"APNs with a certificate", without(a, fields{"certificate_file": ours}, byKey...), ""},
		{"FCM", f, ""},
		{"Web Push", w, ""},
		{"an unknown platform", fields{"platform": "hms"}, `platform: "hms" is none of apns, fcm, webpush, unifiedpush`},
		{"no platform", fields{}, "platform:"},
		{"a field of another platform", without(f, fields{"topic": "x"}), `unknown field "topic"`},
		{"a field of another type", without(a, fields{"topic": 1}), "topic: must not be a number"},
		{"a switch that is a word", without(a, fields{"silent": "no"}), "silent: must not be a string"},
		{"a platform that is a list", fields{"platform": []string{"apns"}}, "platform: must not be a list"},
		{"a field in capitals", without(a, fields{"TOPIC": "com.example.chat"}), `unknown field "TOPIC"`},
		{"a topic of two lines", without(a, fields{"topic": "com.example\n.chat"}), "topic:"},
		{"a topic with a space", without(a, fields{"topic": " com.example.chat"}), "topic:"},
		{"the id of a key with a newline", without(a, fields{"key_id": "ABC123DEF\n"}), "key_id:"},
		{"a certificate and the id of a key", without(a, fields{"certificate_file": ours}, "key_file", "team_id"), "not both"},
		{"a certificate's key alone", without(a, fields{"certificate_key_file": ours}), "certificate_key_file:"},
		{"a port that is none", without(a, fields{"url": "https://apns.example:99999"}), "url: the port"},
		{"an encrypted key", without(a, fields{"key_file": encrypted}), "is encrypted"},
		{"no topic", without(a, nil, "topic"), "topic:"},
		{"no key", without(a, nil, "key_file"), "key_file:"},
		{"a key that is not there", without(a, fields{"key_file": "none.p8"}), "key_file: "},
		{"a key that does not parse", without(a, fields{"key_file": broken}), "key_file: " + broken},
		{"a file without a key", without(a, fields{"key_file": a["ca_file"]}), "has no private key in PEM"},
		{"the id of a key is too short", without(a, fields{"key_id": "ABC"}), "key_id:"},
		{"no team", without(a, nil, "team_id"), "team_id:"},
		{"a key and a certificate", without(a, fields{"certificate_file": ours}), "not both"},
		{"a certificate of another app", without(a, fields{"certificate_file": others}, byKey...), "is for the app com.example.other, and topic is com.example.chat"},
		{"a certificate and another's key", without(a, fields{"certificate_file": ours, "certificate_key_file": others}, byKey...), "private key does not match"},
		{"a certificate that has ended", without(a, fields{"certificate_file": old}, byKey...), "is valid from"},
		{"an unknown way to show 0", without(a, fields{"zero": "keep"}), "zero:"},
		{"plain http", without(a, fields{"url": "http://apns.example"}), "url:"},
		{"no certificates", without(a, fields{"ca_file": a["key_file"]}), "ca_file:"},
		{"a service account that is not JSON", without(f, fields{"service_account_file": broken}), "service_account_file: " + broken},
		{"no service account", without(f, nil, "service_account_file"), "service_account_file:"},
		{"no VAPID key", without(w, nil, "vapid_key_file"), "vapid_key_file:"},
		{"a VAPID key that does not parse", without(w, fields{"vapid_key_file": broken}), "vapid_key_file: " + broken},
		{"no address to write to", without(w, fields{"subject": "ops@example.com"}), "subject:"},
		{"a mailbox without a name", without(w, fields{"subject": "mailto:@example.com"}), "subject:"},
		{"an address of two lines", without(w, fields{"subject": "mailto:ops@example.com\n"}), "subject:"},
		{"a page without a host", without(w, fields{"subject": "https://"}), "subject:"},
		{"a mailbox on this machine", without(w, fields{"subject": "mailto:ops@localhost"}), `subject: "localhost" is only known in your network: Apple refuses`},
		{"a mailbox below localhost", without(w, fields{"subject": "mailto:ops@mail.LOCALHOST"}), "is only known in your network"},
		{"a mailbox of a local network", without(w, fields{"subject": "mailto:ops@chat.local"}), "is only known in your network"},
		{"a mailbox without a domain", without(w, fields{"subject": "mailto:ops@chat"}), "is only known in your network"},
		{"a mailbox at an address", without(w, fields{"subject": "mailto:ops@[10.0.0.1]"}), "is only known in your network"},
		{"a mailbox with parameters", without(w, fields{"subject": "mailto:ops@example.com?subject=push"}), "is not the name of a host"},
		{"a page on this machine", without(w, fields{"subject": "https://localhost:8080/contact"}), "is only known in your network"},
		{"a page at an address", without(w, fields{"subject": "https://[::1]/"}), "is only known in your network"},
		{"a page of a domain with a dot", without(w, fields{"subject": "https://chat.example./contact"}), ""},
		{"a mailbox in an international domain", without(w, fields{"subject": "mailto:ops@bücher.example"}), ""},
		{"a page", without(w, fields{"subject": "https://chat.example/contact"}), ""},
		{"a project that is a path", account(fields{"project_id": "chat/../other"}), "project_id:"},
		{"a project that is a number", account(fields{"project_id": 7}), "project_id: must not be of the JSON type number"},
		{"a key that is too short to sign", account(fields{"private_key": short}), "private_key cannot sign"},
		{"a bad interval", without(w, fields{"silent_interval": "often"}), "silent_interval:"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			file := vendors.WriteConfig(t, map[string]map[string]any{"chat": tt.entry})
			_, err := LoadApps(file, func(bool) *http.Client { return http.DefaultClient }, time.Now)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tt.want != "" && err == nil:
				t.Error("accepted")
			case err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file+`: app "chat": `)):
				t.Errorf("the error is %q, want the file, the app and %q", err, tt.want)
			}
		})
	}
}

func TestMistakesNameTheirPlace(t *testing.T) {
	dir := t.TempDir()
	for name, tt := range map[string]struct{ text, want string }{
		"syntax":                {"{\n\"ios\": {\"platform\": \"apns\",}\n}", "line 2: invalid character"},
		"a list":                {"[]", "line 1: must not be of the JSON type array"},
		"an app named twice":    {"{\n\"web\": {\"platform\": \"hms\"},\n\"web\": {\"platform\": \"webpush\"}\n}", `line 3: app "web" is named twice`},
		"a field given twice":   {"{\n\"ios\": {\"platform\": \"apns\",\n\"platform\": \"fcm\"}\n}", `line 3: app "ios": platform: is given twice`},
		"null":                  {"null", "want a JSON object"},
		"an app that is a word": {`{"ios": "apns"}`, `app "ios": must be a JSON object, is a string`},
		"two apps":              {`{"a b":{"platform":"fcm"},"ios":{"platform":"hms"}}`, `app "ios": platform: "hms"`},
	} {
		file := filepath.Join(dir, "push.json")
		if err := os.WriteFile(file, []byte(tt.text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadApps(file, nil, time.Now)
		if err == nil || !strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), file) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
	if _, err := LoadApps(filepath.Join(dir, "none.json"), nil, time.Now); err == nil {
		t.Error("a missing file is accepted")
	}
}

// One look at a configuration tells every mistake, each with its app and field.
func TestAllMistakesAreTold(t *testing.T) {
	file := filepath.Join(t.TempDir(), "push.json")
	if err := os.WriteFile(file, []byte(`{
		"android": {"platform": "fcm", "url": "http://fcm.example", "ca_file": "none.pem"},
		"ios": {"platform": "apns", "topic": "a b", "zero": "no", "key_id": "1", "silent_interval": "soon"},
		"web": {"platform": "webpush", "subject": "mailto:ops@localhost"}
	}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := LoadApps(file, func(bool) *http.Client { return &http.Client{} }, time.Now)
	if err == nil {
		t.Fatal("the configuration is accepted")
	}
	var got []string
	for line := range strings.Lines(err.Error()) {
		_, mistake, _ := strings.Cut(line, "push.json: ")
		fields := strings.SplitN(mistake, ": ", 3)
		got = append(got, strings.Join(fields[:len(fields)-1], ": "))
	}
	want := []string{
		`app "android": url`, `app "android": ca_file`, `app "android": service_account_file`,
		`app "ios": topic`, `app "ios": zero`, `app "ios": key_file`, `app "ios": key_id`, `app "ios": team_id`, `app "ios": silent_interval`,
		`app "web": subject`, `app "web": vapid_key_file`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the mistakes are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The configurations on the pages name files with keys, and are accepted as they are.
func TestConfigurationsOfThePages(t *testing.T) {
	a, f, w := vendors.NewAPNs(t).Entry(), vendors.NewFCM(t).Entry(), vendors.NewWebPush(t).Entry()
	for _, block := range []snippets.Block{
		snippets.With(t, "docs/push.md", `"degoogled"`, "json"),
		snippets.With(t, "docs/howto/closed-phone.md", `"platform"`, "json", ""),
	} {
		dir := t.TempDir()
		for name, file := range map[string]any{"AuthKey_ABC123DEFG.p8": a["key_file"], "service-account.json": f["service_account_file"], "vapid.pem": w["vapid_key_file"]} {
			key, err := os.ReadFile(file.(string))
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), key, 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		text := block.Text[strings.Index(block.Text, "{"):]
		path := filepath.Join(dir, "push.json")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := LoadApps(path, func(bool) *http.Client { return http.DefaultClient }, time.Now); err != nil {
			t.Errorf("%s: %v", block, err)
		}
	}
}

// The pages show what apps get.
func TestContentsOfThePages(t *testing.T) {
	for _, text := range []string{`"retract"`, `"number": 3`} {
		block := snippets.With(t, "docs/push.md", text, "json")
		decoder := json.NewDecoder(strings.NewReader(block.Text))
		decoder.DisallowUnknownFields()
		var shown content
		if err := decoder.Decode(&shown); err != nil || shown.Epoch == "" || shown.Version == 0 {
			t.Errorf("%s: %v", block, err)
		}
		for _, r := range shown.Retract {
			if n := len((&Push{UserID: "ada", Alert: &outbound.Alert{ConversationID: r.ConversationID, Seq: r.Seq}}).collapse()); len(r.Tag) != n {
				t.Errorf("%s: a tag has %d characters, not %d", block, n, len(r.Tag))
			}
		}
	}
}
