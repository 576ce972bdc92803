package events_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/badged/badged/events"
)

// The events that the how-to pages show are valid.
func TestHowToEvents(t *testing.T) {
	pages, err := filepath.Glob("../docs/howto/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatal(pages, err)
	}
	shown := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range regexp.MustCompile("(?s)```json\n(.*?)```").FindAllSubmatch(text, -1) {
			event, err := events.Decode(found[1])
			if err == nil {
				err = event.Validate()
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", page, err, found[1])
			}
			shown++
		}
	}
	if shown == 0 {
		t.Error("the pages show no event")
	}
}
