package events_test

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/devtest/source"
)

// The events that the pages show are valid. A page may leave out what all events have, and may
// show only the data of a message.
func TestEventsOfThePages(t *testing.T) {
	shown := 0
	for _, block := range snippets.Blocks(t, "json") {
		values := json.NewDecoder(strings.NewReader(block.Text))
		for {
			var fields map[string]any
			err := values.Decode(&fields)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Errorf("%s: %v", block, err)
				break
			}
			event := map[string]any{"specversion": "1.0", "id": "1", "source": "page"}
			_, isEvent := fields["data"].(map[string]any)
			_, isMessage := fields["notification"]
			switch {
			case fields["source"] == "badged": // a webhook's
				continue
			case isEvent && fields["epoch"] == nil:
				maps.Copy(event, fields)
			case isMessage:
				event["type"], event["data"] = events.MessageDelivered, fields
			default:
				continue
			}
			text, err := json.Marshal(event)
			if err != nil {
				t.Fatal(err)
			}
			decoded, err := events.Decode(text)
			if err == nil {
				err = decoded.Validate()
			}
			if err != nil {
				t.Errorf("%s: %v\n%s", block, err, text)
			}
			shown++
		}
	}
	if shown < 15 {
		t.Errorf("the pages show only %d events", shown)
	}
}

// The Go of the pages compiles, in functions that have what a page leaves out.
func TestGoOfThePages(t *testing.T) {
	const page = "docs/publishing.md"
	code := `package snippets

import (
	"context"
	"fmt"
	"log"
	"os"
	"os/exec"
	"testing"

	"github.com/ThreeDotsLabs/watermill"
	watermillsql "github.com/ThreeDotsLabs/watermill-sql/v3/pkg/sql"
	"github.com/badged/badged/events"
	"github.com/badged/badged/events/topics"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

func publish(ctx context.Context, pool *pgxpool.Pool, text string) error {
` + snippets.With(t, page, "events.Publish(", "go").Text + `
	return err
}

func subscribe(ctx context.Context, pool *pgxpool.Pool, handle func(context.Context, []byte) error) error {
` + snippets.With(t, page, "topics.NewSubscriber(", "go").Text + `
	return nil
}

func subscribeByWatermill(pool *pgxpool.Pool, logger watermill.LoggerAdapter) error {
` + snippets.With(t, page, "watermillsql.NewSubscriber(", "go").Text + `
	_ = subscriber
	return err
}

` + snippets.With(t, "docs/testing.md", "TestMain", "go").Text
	dir := t.TempDir()
	file, overlay := filepath.Join(dir, "snippets.go"), filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]map[string]string{"Replace": {source.Path("docs/snippets/snippets.go"): file}})
	if err != nil {
		t.Fatal(err)
	}
	for path, text := range map[string][]byte{file: []byte(code), overlay: replace} {
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	build := exec.CommandContext(t.Context(), "go", "build", "-overlay", overlay, "./docs/snippets")
	build.Dir = source.Path(".")
	if out, err := build.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
