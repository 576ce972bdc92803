package push

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/mail"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// vendor sends pushes to the devices of one app, through APNs, FCM or push services. It is safe
// for concurrent use.
type vendor interface {
	// send sends a push and waits for the answer.
	send(ctx context.Context, p *Push) Outcome
	// route returns a name for the vendor's server to which a push is sent. All pushes with the
	// same route pause together when the server fails or asks for a pause.
	route(p *Push) string
}

// App is an entry of the configuration of pushes.
type App struct {
	Name     string
	Platform Platform
	// AllowPrivate permits subscriptions whose endpoint is in a private network.
	AllowPrivate bool
	// silent permits silent pushes, which have no notification. interval is the minimum time
	// between two silent pushes to a device.
	silent   bool
	interval time.Duration
	vendor   vendor
}

// Environments returns the environments that devices of the app may have.
func (a *App) Environments() []string {
	if a.Platform == APNs {
		return []string{"production", "sandbox"}
	}
	return []string{"production"}
}

// Apps are the configured apps, by name.
type Apps map[string]*App

// appName is the pattern of the names of apps, which are used in metrics and requests.
var appName = regexp.MustCompile(`^[A-Za-z0-9_.-]{1,64}$`)

// LoadApps reads the configuration of apps from a JSON file: an object with an entry for each
// app. Relative paths in the file are relative to the folder of the file. LoadApps connects to no
// vendor. dial returns the HTTP client for endpoints that devices register. now returns the
// present time, for signing tokens for vendors. The error joins all mistakes in the file, each
// with its app and field.
func LoadApps(file string, dial func(allowPrivate bool) *http.Client, now func() time.Time) (Apps, error) {
	text, err := os.ReadFile(file) //nolint:gosec // G304: the operator names it
	if err != nil {
		return nil, err
	}
	var entries map[string]json.RawMessage
	if err := json.Unmarshal(text, &entries); err != nil {
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each app: %w", file, atIndex(text, err))
	}
	if entries == nil {
		return nil, fmt.Errorf("%s: want a JSON object with an entry for each app, not null", file)
	}
	if err := checkNames(text); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	apps := Apps{}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		app, err := parseApp(name, entries[name], filepath.Dir(file), dial, now)
		for _, mistake := range mistakesIn(err) {
			errs = append(errs, fmt.Errorf("%s: app %q: %w", file, name, mistake))
		}
		if err == nil {
			apps[name] = app
		}
	}
	return apps, errors.Join(errs...)
}

// mistakesIn returns the errors that err joins. If err joins no errors, it returns only err.
func mistakesIn(err error) []error {
	switch all := err.(type) { //nolint:errorlint // what errors.Join returned
	case nil:
		return nil
	case interface{ Unwrap() []error }:
		return all.Unwrap()
	}
	return []error{err}
}

// atIndex adds the line number to an error of encoding/json about `text`. It replaces an error that
// names Go types by an error that names JSON types.
func atIndex(text []byte, err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("line %d: %w", lineOf(text, syntax.Offset), err)
	}
	if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		place := fmt.Sprintf("line %d: ", lineOf(text, wrong.Offset))
		if wrong.Field != "" {
			place += wrong.Field + ": "
		}
		return errors.New(place + "must not be of the JSON type " + wrong.Value)
	}
	return err
}

// lineOf returns the number of the line that contains the byte at offset. The first line is 1.
func lineOf(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n"))
}

// checkNames returns an error if an app, or a field of an app, occurs twice: encoding/json would
// silently use the last occurrence.
func checkNames(text []byte) error {
	_, err := jsontext.NewDecoder(bytes.NewReader(text), jsontext.AllowInvalidUTF8(true)).ReadValue()
	repeated, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok || !errors.Is(err, jsontext.ErrDuplicateName) {
		return nil // the decoder reports other mistakes
	}
	line, path := lineOf(text, repeated.ByteOffset), slices.Collect(repeated.JSONPointer.Tokens())
	if len(path) == 1 {
		return fmt.Errorf("line %d: app %q is named twice", line, path[0])
	}
	return fmt.Errorf("line %d: app %q: %s: is given twice", line, path[0], strings.Join(path[1:], "."))
}

// common are the settings that all platforms have.
type common struct {
	Platform Platform `json:"platform"`
	Silent   *bool    `json:"silent"`
	Interval string   `json:"silent_interval"`
}

// server has the settings of platforms with a single vendor.
type server struct {
	// URL replaces the address of the vendor's server, for a proxy or a test.
	URL    string `json:"url"`
	CAFile string `json:"ca_file"`
}

type apnsSettings struct {
	common
	server
	Topic              string `json:"topic"`
	KeyFile            string `json:"key_file"`
	KeyID              string `json:"key_id"`
	TeamID             string `json:"team_id"`
	CertificateFile    string `json:"certificate_file"`
	CertificateKeyFile string `json:"certificate_key_file"`
	Background         bool   `json:"background"`
	Zero               string `json:"zero"`
}

type fcmSettings struct {
	common
	server
	ServiceAccountFile string `json:"service_account_file"`
}

type webPushSettings struct {
	common
	VAPIDKeyFile string `json:"vapid_key_file"`
	Subject      string `json:"subject"`
	AllowPrivate bool   `json:"allow_private"`
}

// backgroundInterval is the default of App.interval for background pushes: Apple delivers only
// two or three background pushes per hour to a device.
const backgroundInterval = 20 * time.Minute

func parseApp(name string, text []byte, dir string, dial func(bool) *http.Client, now func() time.Time) (*App, error) {
	if !appName.MatchString(name) {
		return nil, errors.New("the name must have 1 to 64 letters, digits, dots, dashes and underscores")
	}
	var kind struct {
		Platform Platform `json:"platform"`
	}
	if err := decode(text, &kind); err != nil {
		return nil, err
	}
	app := &App{Name: name, Platform: kind.Platform}
	var shared common
	var err error
	interval := time.Duration(0)
	switch kind.Platform {
	case APNs:
		var s apnsSettings
		if err := strict(text, &s); err != nil {
			return nil, err
		}
		if s.Background {
			interval = backgroundInterval
		}
		shared = s.common
		app.vendor, err = newAPNs(s, dir, now)
	case FCM:
		var s fcmSettings
		if err := strict(text, &s); err != nil {
			return nil, err
		}
		shared = s.common
		app.vendor, err = newFCM(s, dir, now)
	case WebPush, UnifiedPush:
		var s webPushSettings
		if err := strict(text, &s); err != nil {
			return nil, err
		}
		shared, app.AllowPrivate = s.common, s.AllowPrivate
		app.vendor, err = newWebPush(s, dir, dial(s.AllowPrivate), now)
	default:
		return nil, fmt.Errorf("platform: %q is none of apns, fcm, webpush, unifiedpush", kind.Platform)
	}
	errs := mistakesIn(err)
	app.silent = shared.Silent == nil || *shared.Silent
	app.interval = interval
	if shared.Interval != "" {
		if app.interval, err = time.ParseDuration(shared.Interval); err != nil || app.interval < 0 || app.interval > 24*time.Hour {
			errs = append(errs, errors.New("silent_interval: must be a duration such as 20m, at most 24h"))
		}
	}
	return app, errors.Join(errs...)
}

var (
	bundleID = regexp.MustCompile(`^[A-Za-z0-9.-]+$`)
	hostName = regexp.MustCompile(`^([\p{L}\p{N}]([\p{L}\p{N}-]*[\p{L}\p{N}])?\.)+[\p{L}\p{N}-]+$`)
	appleID  = regexp.MustCompile(`^[A-Za-z0-9]{10}$`)
	// projectID is the pattern of Google's project ids. Some of these ids begin with a domain
	// name.
	projectID = regexp.MustCompile(`^[a-z0-9.:-]+$`)
)

// followNone is the CheckRedirect of clients that do not follow redirects. Vendors do not
// redirect. So a redirect comes from another system between this server and the vendor, and
// following it would send tokens to an address that this system chooses.
func followNone(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func newAPNs(s apnsSettings, dir string, now func() time.Time) (vendor, error) {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	switch {
	case s.Topic == "":
		wrong("topic: is required: the bundle id of the app")
	case !bundleID.MatchString(s.Topic):
		wrong("topic: %q is no bundle id: letters, digits, dots and dashes", s.Topic)
	}
	a := &apns{topic: s.Topic, background: s.Background, now: now, servers: map[string]string{"production": apnsProduction, "sandbox": apnsSandbox}}
	switch s.Zero {
	case "", "clear":
	case "background":
		a.zeroInBackground = true
	default:
		wrong("zero: must be clear or background, is %q", s.Zero)
	}
	config, err := s.reach(func(base string) { a.servers = map[string]string{"production": base, "sandbox": base} }, dir)
	errs = append(errs, mistakesIn(err)...)
	switch {
	case s.CertificateFile != "" && (s.KeyFile != "" || s.KeyID != "" || s.TeamID != ""):
		wrong("certificate_file: give it, or key_file with key_id and team_id, not both")
	case s.CertificateFile == "" && s.CertificateKeyFile != "":
		wrong("certificate_key_file: is the key of certificate_file, which is missing")
	case s.CertificateFile != "":
		certificate, err := loadCertificate(path(dir, s.CertificateFile), path(dir, s.CertificateKeyFile), s.Topic)
		if err != nil {
			wrong("certificate_file: %w", err)
		} else if config != nil {
			config.Certificates = []tls.Certificate{certificate}
		}
	default:
		a.token = &providerToken{keyID: s.KeyID, teamID: s.TeamID, now: now}
		if s.KeyFile == "" {
			wrong("key_file: is required: the .p8 file of the key from Apple's developer account")
		} else if a.token.key, err = loadECKey(path(dir, s.KeyFile)); err != nil {
			wrong("key_file: %w", err)
		}
		if !appleID.MatchString(s.KeyID) {
			wrong("key_id: must have the 10 letters and digits of the key's id")
		}
		if !appleID.MatchString(s.TeamID) {
			wrong("team_id: must have the 10 letters and digits of the team's id")
		}
	}
	a.client = &http.Client{Transport: newAPNsTransport(config), CheckRedirect: followNone}
	return a, errors.Join(errs...)
}

// reach returns the TLS settings for connections to the vendor. If s.URL is set, reach calls the
// function `use` with this URL, without a final slash.
func (s *server) reach(use func(base string), dir string) (*tls.Config, error) {
	var errs []error
	if s.URL != "" {
		base, err := baseURL(s.URL)
		errs = append(errs, err)
		use(base)
	}
	config, err := s.tls(dir)
	return config, errors.Join(append(errs, err)...)
}

func newFCM(s fcmSettings, dir string, now func() time.Time) (vendor, error) {
	f := &fcm{server: fcmServer}
	config, err := s.reach(func(base string) { f.server = base }, dir)
	errs := mistakesIn(err)
	if s.ServiceAccountFile == "" {
		return nil, errors.Join(append(errs, errors.New("service_account_file: is required: the key file of a service account of the Firebase project"))...)
	}
	account, key, err := loadServiceAccount(path(dir, s.ServiceAccountFile))
	if err != nil {
		errs = append(errs, fmt.Errorf("service_account_file: %w", err))
	}
	f.client = &http.Client{CheckRedirect: followNone, Transport: newInTurn(&http.Transport{
		Proxy: http.ProxyFromEnvironment, TLSClientConfig: config, ForceAttemptHTTP2: true,
		DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
		TLSHandshakeTimeout: 10 * time.Second, IdleConnTimeout: 5 * time.Minute,
		HTTP2: &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 10 * time.Second},
	})}
	f.token = &accessToken{client: f.client, account: account, key: key, now: now, fetching: make(chan struct{}, 1)}
	return f, errors.Join(errs...)
}

func newWebPush(s webPushSettings, dir string, client *http.Client, now func() time.Time) (vendor, error) {
	var errs []error
	if err := checkContact(s.Subject); err != nil {
		errs = append(errs, fmt.Errorf("subject: %w", err))
	}
	if s.VAPIDKeyFile == "" {
		errs = append(errs, errors.New("vapid_key_file: is required; `openssl ecparam -name prime256v1 -genkey -noout` makes a key"))
		return nil, errors.Join(errs...)
	}
	key, err := loadECKey(path(dir, s.VAPIDKeyFile))
	var signer *vapid
	if err == nil {
		signer, err = newVAPID(key, s.Subject, now)
	}
	if err != nil {
		errs = append(errs, fmt.Errorf("vapid_key_file: %w", err))
	}
	turns := *client
	turns.CheckRedirect = followNone
	turns.Transport = newInTurn(client.Transport)
	return &webPush{client: &turns, vapid: signer}, errors.Join(errs...)
}

// checkContact returns an error if push services cannot contact the operator at `subject`, the
// mailto: or https: address in the token that VAPID sends to push services.
func checkContact(subject string) error {
	host := ""
	if address, isMail := strings.CutPrefix(subject, "mailto:"); isMail {
		if parsed, err := mail.ParseAddress(address); err == nil && parsed.Address == address {
			host = address[strings.LastIndexByte(address, '@')+1:]
		}
	} else if u, err := url.Parse(subject); err == nil && u.Scheme == "https" {
		host = u.Hostname()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	last := host[strings.LastIndexByte(host, '.')+1:]
	switch _, err := netip.ParseAddr(strings.Trim(host, "[]")); {
	case host == "":
		return errors.New("must be how push services reach you: mailto:… or https://…")
	case err == nil || slices.Contains(localNames, last) || last == host:
		return fmt.Errorf("%q is only known in your network: Apple refuses all pushes with it (BadJwtToken); give an address in a public domain, such as mailto:ops@chat.example", host)
	case !hostName.MatchString(host):
		return fmt.Errorf("%q is not the name of a host", host)
	}
	return nil
}

// localNames are top-level domains without public hosts. ICANN has reserved "internal"; RFC 6761,
// RFC 6762 or convention reserve the rest.
var localNames = []string{"internal", "invalid", "lan", "local", "localdomain", "localhost", "test"}

// path returns the path of a file that the configuration names. A relative file is relative to
// dir.
func path(dir, file string) string {
	if file == "" || filepath.IsAbs(file) {
		return file
	}
	return filepath.Join(dir, file)
}

// baseURL checks the URL of a vendor's server, and returns the URL without a final slash.
func baseURL(text string) (string, error) {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || u.User != nil {
		return "", errors.New("url: must be an https URL without a query")
	}
	if port, err := strconv.ParseUint(u.Port(), 10, 16); u.Port() != "" && (err != nil || port == 0) {
		return "", errors.New("url: the port must be from 1 to 65535")
	}
	return strings.TrimRight(text, "/"), nil
}
