package web_test

import (
	"io/fs"
	"regexp"
	"strings"
	"testing"

	"github.com/badged/badged/web"
)

func TestDemoHasAllThatThePageLoads(t *testing.T) {
	page := read(t, "index.html")
	links := regexp.MustCompile(`(?:src|href)="([^"]*)"`).FindAllStringSubmatch(page, -1)
	if len(links) < 3 {
		t.Fatalf("index.html loads only %v: script, style and icon are missing", links)
	}
	for _, link := range links {
		read(t, link[1])
	}
}

// A page that obeys a strict Content-Security-Policy has nothing inline and
// nothing from elsewhere.
func TestDemoObeysAStrictContentSecurityPolicy(t *testing.T) {
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
	for name, patterns := range forbidden {
		content := read(t, name)
		for _, p := range patterns {
			if found := p.FindString(content); found != "" {
				t.Errorf("%s has %q, which a strict policy forbids", name, found)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := fs.ReadFile(web.Demo(), name)
	if err != nil {
		t.Fatalf("%v: is web/dist built? Run npm run build in web", err)
	}
	if strings.TrimSpace(string(b)) == "" {
		t.Fatalf("%s is empty", name)
	}
	return string(b)
}
