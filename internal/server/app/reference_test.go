package app

import (
	"bytes"
	"encoding/json"
	"flag"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/base/describe/describetest"
	"github.com/badged/badged/internal/devtest/accesstest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/snippets"
)

// update is set by `make docs`.
var update = flag.Bool("update", false, "write docs/reference instead of comparing with it")

// root is the module's directory.
const root = "../../.."

func TestReferenceIsUpToDate(t *testing.T) {
	files, err := reference()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		path := filepath.Join(root, "docs", "reference", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		got, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("docs/reference/%s differs from the code; run `make docs` and commit the result", name)
		}
	}
}

// documents returns the descriptions of the routes and of the frames, which all
// tests share.
func documents(t *testing.T) (openAPI, asyncAPI *describetest.Document) {
	t.Helper()
	parsed, err := parsedDescriptions()
	if err != nil {
		t.Fatal(err)
	}
	return parsed.openAPI, parsed.asyncAPI
}

type parsedDocuments struct{ openAPI, asyncAPI *describetest.Document }

var parsedDescriptions = sync.OnceValues(func() (d parsedDocuments, err error) {
	forRequests, forMessages, err := descriptions()
	if err != nil {
		return d, err
	}
	if d.openAPI, err = describetest.Parse(forRequests); err != nil {
		return d, err
	}
	d.asyncAPI, err = describetest.Parse(forMessages)
	return d, err
})

// validateFrame checks a frame against its description.
func validateFrame(doc *describetest.Document, frame []byte) error {
	var f struct {
		T string `json:"t"`
	}
	if err := json.Unmarshal(frame, &f); err != nil {
		return err
	}
	return doc.Validate(frame, "components", "messages", describe.TypeName(f.T), "payload")
}

// validateEvent checks a published event against its description.
func validateEvent(doc *describetest.Document, event []byte) error {
	return doc.Validate(event, "components", "schemas", "Event")
}

func TestExamplesAreAsDescribed(t *testing.T) {
	openAPI, asyncAPI := documents(t)
	if n := openAPI.CheckExamples(t); n < 40 {
		t.Errorf("only %d examples of requests and answers", n)
	}
	if n, want := asyncAPI.CheckExamples(t), len(messaging().Channels[0].Sends)+len(messaging().Channels[0].Receives); n < want {
		t.Errorf("only %d examples of messages, want %d and more", n, want)
	}
}

// The reference gives the meaning of every field.
func TestEveryFieldHasAMeaning(t *testing.T) {
	openAPI, _, err := descriptions()
	if err != nil {
		t.Fatal(err)
	}
	var doc struct {
		Components struct {
			Schemas map[string]struct {
				Properties map[string]struct {
					Description string `json:"description"`
				} `json:"properties"`
			} `json:"schemas"`
		} `json:"components"`
	}
	if err := json.Unmarshal(openAPI, &doc); err != nil {
		t.Fatal(err)
	}
	fields := 0
	for schema, s := range doc.Components.Schemas {
		for field, f := range s.Properties {
			fields++
			if f.Description == "" {
				t.Errorf("%s.%s has no description: give its Go field a doc tag", schema, field)
			}
		}
	}
	if fields < 200 {
		t.Errorf("only %d fields", fields)
	}
}

func TestGoldenFramesAreAsDescribed(t *testing.T) {
	_, asyncAPI := documents(t)
	files, err := filepath.Glob(filepath.Join(root, "web", "sdk", "testdata", "frames", "*.json"))
	if err != nil || len(files) < 20 {
		t.Fatalf("golden files: %v, %v", files, err)
	}
	seen := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if err := validateFrame(asyncAPI, b); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		if strange := bytes.Replace(b, []byte("{"), []byte(`{"frobnicate":1,`), 1); validateFrame(asyncAPI, strange) == nil {
			t.Errorf("%s with an unknown field passes", file)
		}
		name, _, _ := strings.Cut(strings.TrimSuffix(filepath.Base(file), ".json"), "-")
		seen[name] = true
	}
	for _, f := range append(protocol.ClientFrames(), protocol.ServerFrames()...) {
		if !seen[f.T] {
			t.Errorf("there is no golden file of %s", f.T)
		}
	}
}

// Every frame and event that a page shows in full is valid.
func TestPagesShowWhatIsDescribed(t *testing.T) {
	openAPI, asyncAPI := documents(t)
	frames, events := 0, 0
	check := func(path string) {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for at := range b {
			isFrame, isEvent := bytes.HasPrefix(b[at:], []byte(`{"t":`)), bytes.HasPrefix(b[at:], []byte(`{"specversion":`))
			deadLetter := bytes.HasSuffix(b[:at], []byte(`"payload":`)) // is invalid on purpose
			if !isFrame && !isEvent || deadLetter {
				continue
			}
			var shown json.RawMessage
			if err := json.NewDecoder(bytes.NewReader(b[at:])).Decode(&shown); err != nil {
				if line, _, _ := bytes.Cut(b[at:], []byte("\n")); !bytes.Contains(line, []byte("…")) {
					t.Errorf("%s shows %s: %v", path, line, err)
				}
				continue // shortened for readers
			}
			if isFrame {
				frames++
				err = validateFrame(asyncAPI, shown)
			} else {
				events++
				err = validateEvent(openAPI, shown)
			}
			if err != nil {
				t.Errorf("%s shows %s: %v", path, shown, err)
			}
		}
	}
	check(filepath.Join(root, "README.md"))
	err := filepath.WalkDir(filepath.Join(root, "docs"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && d.Name() != "events.md" { // shows an event that publishers cannot send
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if frames < 20 || events < 2 {
		t.Errorf("only %d frames and %d events", frames, events)
	}
}

// The answers that pages show are as described.
func TestAnswersOfThePages(t *testing.T) {
	openAPI, _ := documents(t)
	for _, shown := range []struct {
		page, text, method, path string
		status                   int
		header                   http.Header // which the pages do not show
	}{
		{"README.md", `"accepted"`, http.MethodPost, "/v1/events", http.StatusAccepted, http.Header{"Badged-Position": {"1"}, "Content-Type": {"application/json"}}},
		{"README.md", `"user_id":"eve"`, http.MethodGet, "/v1/users/{user}/badge", http.StatusOK, http.Header{"Content-Type": {"application/json"}}},
		{"docs/http-api.md", `"lacking"`, http.MethodPost, "/v1/badges/query", http.StatusServiceUnavailable, http.Header{"Retry-After": {"1"}, "Content-Type": {"application/problem+json"}}},
	} {
		t.Run(shown.path, func(t *testing.T) {
			block := snippets.With(t, shown.page, shown.text, "json")
			openAPI.CheckAnswer(t, shown.method, shown.path, shown.status, shown.header, []byte(block.Text))
		})
	}
	block := snippets.With(t, "docs/webhooks.md", `"badge.changed", "subject"`, "json")
	var event struct{ Data json.RawMessage }
	if err := json.Unmarshal([]byte(block.Text), &event); err != nil {
		t.Fatalf("%s: %v", block, err)
	}
	if err := openAPI.Validate(event.Data, "components", "schemas", "Badge"); err != nil {
		t.Errorf("%s: %v", block, err)
	}
}

// A server with all roles has every route that is described, and answers as
// described. TestRoutesAreInTables of internal/devtest/architecture checks
// that it has no others.
func TestServerAnswersAsDescribed(t *testing.T) {
	internal := listen(t)
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated())), WithInternal(internal)))
	openAPI, _ := documents(t)
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")+message("tea", 7, "ada")))
	of := accesstest.Routes()
	token := "Bearer " + s.token(t, "ada") // the next second has another
	for _, r := range api().Routes {
		for _, key := range []string{"", "Bearer " + publisherKey, "Bearer admin-secret", token} {
			if r.Path == "/v1/sse" && key == token {
				continue // it does not end; TestClientSeesFramesAsDescribed reads it
			}
			body, contentType := "", ""
			if len(r.Body) > 0 {
				body, contentType = r.Body[0].Example, r.Body[0].MediaType
			}
			url := s.url
			if of[r.Method+" "+r.Path].Internal {
				url = "http://" + internal.Addr().String()
			}
			request := newRequest(t, r.Method, url+strings.NewReplacer("{user}", "ada", "{profile}", "heap").Replace(r.Path), body)
			request.Header.Set("Authorization", key)
			request.Header.Set("Content-Type", contentType)
			a := s.send(t, request)
			openAPI.CheckAnswer(t, r.Method, r.Path, a.status, a.header, []byte(a.body))
			described := slices.ContainsFunc(r.Answers, func(answer describe.Answer) bool { return answer.Status == a.status })
			if (a.status == http.StatusNotFound || a.status == http.StatusMethodNotAllowed) && !described {
				t.Errorf("%s is answered with %d %s", r.Pattern(), a.status, a.body)
			}
		}
	}
	openAPIBody, asyncAPIBody, err := descriptions()
	if err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + internal.Addr().String()
	if a := s.get(t, "/openapi.json"); a.body != string(openAPIBody)+"\n" {
		t.Error("/openapi.json is not the description")
	}
	if a := s.get(t, "/asyncapi.json"); a.body != string(asyncAPIBody)+"\n" {
		t.Error("/asyncapi.json is not the description")
	}
}

func TestClientSeesFramesAsDescribed(t *testing.T) {
	s := run(t, open(t, settings(pgtest.NewDB(t, migrated()))))
	_, asyncAPI := documents(t)
	s.badge(t, "ada", s.publish(t, message("lunch", 1, "ada")))
	dial(t, s, "ada").close() // the gateway is up
	conn, status, err := upgrade(t, s, http.Header{"Authorization": {"Bearer " + s.token(t, "ada")}})
	if err != nil {
		t.Fatalf("dial: %d, %v", status, err)
	}
	defer conn.Close()
	if err := conn.SetReadDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c := &client{conn: conn}
	for _, exchange := range []struct{ say, until string }{
		{`{"t":"hello"}`, "snapshot"},
		{`{"t":"read","id":1,"conversation_id":"lunch","up_to_seq":1}`, "changes"},
		{`{"t":"auth","id":"a","token":"` + s.token(t, "ada") + `"}`, "ok"},
		{`{"t":"mark_unread","id":2,"conversation_id":"nowhere"}`, "error"},
		{`{"t":"ping"}`, "pong"},
		{`{"t":"hello"}`, "bye"},
	} {
		c.write(t, exchange.say)
		if err := validateFrame(asyncAPI, []byte(exchange.say)); err != nil {
			t.Error(err)
		}
		for came := ""; came != exchange.until; {
			_, b, err := conn.ReadMessage()
			if err != nil {
				t.Fatalf("waiting for %s: %v", exchange.until, err)
			}
			if err := validateFrame(asyncAPI, b); err != nil {
				t.Errorf("%s: %v", b, err)
			}
			var f frame
			_ = json.Unmarshal(b, &f) // ids are of several types
			came = f.T
		}
	}
}

// The problems of the API and of the gateway have one type, by which clients tell
// answers of badged.
func TestProblemsHaveOneType(t *testing.T) {
	if describe.ProblemType != protocol.ProblemType {
		t.Errorf("%s and %s", describe.ProblemType, protocol.ProblemType)
	}
}
