package events_test

import (
	"encoding/json"
	"os"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/category"
)

// categoryCases are what Go, SQL and the client in TypeScript agree on.
type categoryCases struct {
	Covers []struct {
		Path, Category string
		Covers         bool
	}
	Valid []struct {
		Category string
		Valid    bool
	}
	Levels []struct {
		Levels               category.Levels
		Own, Category, Level string
	}
}

func casesOfCategories(t *testing.T) (cases categoryCases) {
	t.Helper()
	b, err := os.ReadFile("../web/sdk/testdata/paths.json")
	if err == nil {
		err = json.Unmarshal(b, &cases)
	}
	if err != nil || len(cases.Covers) == 0 || len(cases.Valid) == 0 || len(cases.Levels) == 0 {
		t.Fatalf("%+v, %v", cases, err)
	}
	return cases
}

func TestCategories(t *testing.T) {
	cases := casesOfCategories(t)
	for _, c := range cases.Covers {
		if got := events.Covers(c.Path, c.Category); got != c.Covers {
			t.Errorf("%q covers %q: %v", c.Path, c.Category, got)
		}
	}
	for _, c := range cases.Valid {
		if reason := events.CheckCategory(c.Category); (reason == "") != c.Valid {
			t.Errorf("%q: %q", c.Category, reason)
		}
	}
	for _, c := range cases.Levels {
		if got := c.Levels.Of(c.Own, c.Category); got != c.Level {
			t.Errorf("%+v: %s", c, got)
		}
	}
}

func TestCategoriesInSQL(t *testing.T) {
	_, pool := newLog(t)
	ask := func(sql string, to any, args ...any) {
		t.Helper()
		if err := pool.QueryRow(t.Context(), sql, args...).Scan(to); err != nil {
			t.Fatal(err)
		}
	}
	cases := casesOfCategories(t)
	for _, c := range cases.Covers {
		var got bool
		if ask(`SELECT badged.covers($1, $2)`, &got, c.Path, c.Category); got != c.Covers {
			t.Errorf("%q covers %q: %v", c.Path, c.Category, got)
		}
		if ask(`SELECT $1 = ANY (badged.paths_of($2))`, &got, c.Path, c.Category); got != c.Covers {
			t.Errorf("%q is a path of %q: %v", c.Path, c.Category, got)
		}
	}
	for _, c := range cases.Valid {
		var reason *string
		if ask(`SELECT badged.path_problem($1, 255)`, &reason, c.Category); (reason == nil) != c.Valid {
			t.Errorf("%q: %v", c.Category, reason)
		}
		event, err := json.Marshal(map[string]any{"specversion": "1.0", "id": "1", "source": "chat", "type": "message.delivered", "data": map[string]any{
			"conversation_id": "c", "seq": 1, "user_ids": []string{"ada"}, "category": c.Category,
		}})
		if err != nil {
			t.Fatal(err)
		}
		var plain bool
		if ask(`SELECT badged.is_plain(e, e -> 'data') FROM (SELECT $1::jsonb AS e) AS x`, &plain, event); plain && !c.Valid {
			t.Errorf("the quick check accepts %q", c.Category)
		}
	}
	for _, c := range cases.Levels {
		var got string
		if ask(`SELECT badged.closest_level($1::badged.level, $2, $3::jsonb)::text`, &got, c.Own, c.Category, c.Levels); got != c.Level {
			t.Errorf("%+v: %s", c, got)
		}
	}
}
