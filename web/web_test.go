package web_test

import (
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/web"
)

// pages returns all pages by name.
func pages() map[string]fs.FS { return map[string]fs.FS{"demo": web.Demo(), "admin": web.Admin()} }

func TestPagesContainTheFilesTheyLoad(t *testing.T) {
	for name, files := range pages() {
		page := read(t, files, "index.html")
		links := regexp.MustCompile(`(?:src|<link[^>]* href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
		if len(links) < 3 {
			t.Fatalf("index.html of %s loads only %v, want script, style and icon", name, links)
		}
		for _, link := range links {
			read(t, files, link[1])
		}
	}
}

func TestPagesAreServedUnderAStrictPolicy(t *testing.T) {
	w := httptest.NewRecorder()
	web.Handler(web.Admin()).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
	policy := w.Header().Get("Content-Security-Policy")
	if w.Code != http.StatusOK || !strings.HasPrefix(policy, "default-src 'none'; script-src 'self';") || strings.Contains(policy, "unsafe") {
		t.Errorf("status %d, Content-Security-Policy %q", w.Code, policy)
	}
}

// Under a strict Content-Security-Policy a page has no inline script or style
// and loads nothing from other origins.
func TestPagesObeyAStrictContentSecurityPolicy(t *testing.T) {
	forbidden := map[string][]*regexp.Regexp{
		"index.html": {
			regexp.MustCompile(`<script[^>]*>[^<]`),
			regexp.MustCompile(`<style`),
			regexp.MustCompile(`\sstyle=`),
			regexp.MustCompile(`\son\w+=`),
			regexp.MustCompile(`https?:`),
		},
		"app.css": {
			regexp.MustCompile(`@import|url\(`),
		},
		"app.js": {
			regexp.MustCompile(`\beval\(|new Function\(|innerHTML`),
			regexp.MustCompile(`setAttribute\("style"`),
		},
	}
	for page, files := range pages() {
		for name, patterns := range forbidden {
			content := read(t, files, name)
			for _, p := range patterns {
				if found := p.FindString(content); found != "" {
					t.Errorf("%s of %s has %q, which the policy forbids", name, page, found)
				}
			}
		}
	}
}

func read(t *testing.T, files fs.FS, name string) string {
	t.Helper()
	b, err := fs.ReadFile(files, name)
	if err != nil {
		t.Fatalf("%v: run npm run build in web", err)
	}
	if strings.TrimSpace(string(b)) == "" {
		t.Fatalf("%s is empty", name)
	}
	return string(b)
}
