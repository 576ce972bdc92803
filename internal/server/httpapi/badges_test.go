package httpapi_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

func TestBadge(t *testing.T) {
	for _, test := range []struct{ name, target, userID string }{
		{"a user", "/v1/users/ada/badge", "ada"},
		{"an id with a slash", "/v1/users/a%2Fb/badge", "a/b"},
		{"an id with two slashes", "/v1/users/a%2F%2Fb/badge", "a//b"},
		{"an id of dots", "/v1/users/%2E%2E/badge", ".."},
		{"an id that is not ASCII", "/v1/users/Chlo%C3%A9%20🙂/badge", "Chloé 🙂"},
		{"an id with a question mark", "/v1/users/a%3Fb/badge", "a?b"},
		{"an id as long as they get", "/v1/users/" + strings.Repeat("x", 128) + "/badge", strings.Repeat("x", 128)},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			a := get(t, f, test.target)
			if len(f.badges.looks) > 0 {
				t.Errorf("without at_least it looked for %v", f.badges.looks)
			}
			id, err := json.Marshal(test.userID)
			if err != nil {
				t.Fatal(err)
			}
			want := fmt.Sprintf(`{"user_id":%s,"epoch":"e1","version":7,"total":%d,"mentions":1,"unread_conversations":1,"unseen":0,"categories":{"chat":{"total":%[2]d,"mentions":1,"unread_conversations":1,"unseen":0}}}`+"\n", id, len(test.userID))
			if a.status != http.StatusOK || a.body != want {
				t.Errorf("answer is %d %s, want 200 %s", a.status, a.body, want)
			}
			if got := a.header.Get("Content-Type"); got != "application/json" {
				t.Errorf("Content-Type = %q", got)
			}
			if got := a.header.Get("Cache-Control"); got != "no-store" {
				t.Errorf("Cache-Control = %q: a badge must not be cached", got)
			}
		})
	}
}

func TestReadsRefuse(t *testing.T) {
	const badTimeout = "400 timeout must be a duration such as 500ms or 2s, at most 30s"
	const badLimit = "400 limit must be a number from 1 to 500"
	const badPosition = "400 at_least must be a token from a Badged-Position header"
	for _, test := range []struct{ name, target, want string }{
		{"a user id with a control character", "/v1/users/a%00/badge", "400 user id must not hold control characters"},
		{"a user id that is too long", "/v1/users/" + strings.Repeat("x", 129) + "/badge", "400 user id must have at most 128 bytes, has 129"},
		{"a user id that is not UTF-8", "/v1/users/%ff/conversations", "400 user id must be valid UTF-8"},

		{"a parameter that a badge does not have", "/v1/users/ada/badge?atleast=1", `400 "atleast" is not a parameter of this route`},
		{"a parameter that conversations do not have", "/v1/users/ada/conversations?at_least=1", `400 "at_least" is not a parameter of this route`},
		{"a category that is none", "/v1/users/ada/conversations?category=acme//x", "400 category must have parts with a slash between each two: it has an empty part"},
		{"muted that is neither", "/v1/users/ada/conversations?muted=some", "400 muted must be true or false"},
		{"a category with nine parts", "/v1/users/ada/categories?category=1/2/3/4/5/6/7/8/9", "400 category must have at most 8 parts, has 9"},
		{"a cursor of no page of categories", "/v1/users/ada/categories?cursor=x", "400 cursor must be the cursor of the previous page"},
		{"a malformed query", "/v1/users/ada/badge?at_least=%zz", "400 the query cannot be read"},

		{"a position that is not a number", "/v1/users/ada/badge?at_least=soon", badPosition},
		{"a negative position", "/v1/users/ada/badge?at_least=-1", badPosition},
		{"a position past all numbers", "/v1/users/ada/badge?at_least=9223372036854775808", badPosition},
		{"a timeout without unit", "/v1/users/ada/badge?at_least=1&timeout=2", badTimeout},
		{"a negative timeout", "/v1/users/ada/badge?at_least=1&timeout=-1s", badTimeout},
		{"a timeout that is too long", "/v1/users/ada/badge?at_least=1&timeout=31s", badTimeout},
		{"a timeout for nothing", "/v1/users/ada/badge?timeout=1s", "400 timeout requires at_least"},

		{"no conversations", "/v1/users/ada/conversations?limit=0", badLimit},
		{"too many conversations", "/v1/users/ada/conversations?limit=501", badLimit},
		{"some conversations", "/v1/users/ada/conversations?limit=some", badLimit},
		{"seqs of another type", "/v1/users/ada/conversations?seqs=bigint", "400 seqs must be number or string"},
		{"unread perhaps", "/v1/users/ada/conversations?unread=perhaps", "400 unread must be true or false"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := get(t, newFixture(t), test.target).story(t); got != test.want {
				t.Errorf("answer is %s, want %s", got, test.want)
			}
		})
	}
}

// A token that is restricted to categories reads these, and has no devices: they are
// told of all.
func TestTokenOfCategories(t *testing.T) {
	f := newFixture(t)
	as := func(target string) answer { return ask(t, f, chatToken, http.MethodGet, target, "", "") }
	a := as("/v1/users/ada/badge")
	var badge pubsub.Badge
	if err := json.Unmarshal([]byte(a.body), &badge); err != nil || a.status != http.StatusOK {
		t.Fatalf("%d %s", a.status, a.body)
	}
	full := badgeOf("ada")
	if badge.Total != 3 || badge.Mentions != 1 || badge.UnreadConversations != 1 || badge.Categories["likes"].Total != 0 || badge.Version != full.Version || badge.Epoch == full.Epoch {
		t.Errorf("the badge is %+v", badge)
	}
	if f.badges.asked != "user=ada categories=[chat news]" {
		t.Errorf("asked for %s", f.badges.asked)
	}
	as("/v1/users/ada/conversations")
	if want := "user=ada unread=false limit=100 cursor= categories=[chat news]"; f.badges.asked != want {
		t.Errorf("asked for %s, want %s", f.badges.asked, want)
	}
	f.badges.asked = ""
	if a := as("/v1/users/ben/badge"); a.status != http.StatusForbidden || f.badges.asked != "" {
		t.Errorf("another user: %d %s", a.status, a.body)
	}
}

func TestConversations(t *testing.T) {
	f := newFixture(t)
	f.badges.pages = map[string]page{
		"": {conversations: []pubsub.Conversation{{
			ConversationID: "c1", Unread: 3, Mentions: 1, FirstUnreadSeq: 8, ReadSeq: 7, LastSeq: 1234567890123456789,
			Level: "all", Category: "chat", MarkedUnread: true, Version: 12,
		}}, next: "more"},
		"more":   {},
		"forged": {err: fmt.Errorf("look: %w", badges.ErrBadCursor)},
	}
	for _, test := range []struct{ name, query, asked, body string }{
		{
			"the first page", "", "user=ada unread=false limit=100 cursor=",
			`{"conversations":[{"conversation_id":"c1","unread":3,"mentions":1,"first_unread_seq":8,"read_seq":7,"last_seq":1234567890123456789,` +
				`"level":"all","category":"chat","marked_unread":true,"version":12}],"cursor":"more"}`,
		},
		{
			"seqs as strings", "?seqs=string", "user=ada unread=false limit=100 cursor=",
			`{"conversations":[{"conversation_id":"c1","unread":3,"mentions":1,"first_unread_seq":"8","read_seq":"7","last_seq":"1234567890123456789",` +
				`"level":"all","category":"chat","marked_unread":true,"version":12}],"cursor":"more"}`,
		},
		{"the last page", "?unread=true&limit=500&cursor=more", "user=ada unread=true limit=500 cursor=more", `{"conversations":[]}`},
	} {
		t.Run(test.name, func(t *testing.T) {
			a := get(t, f, "/v1/users/ada/conversations"+test.query)
			if a.status != http.StatusOK || a.body != test.body+"\n" {
				t.Errorf("answer is %d %s, want 200 %s", a.status, a.body, test.body)
			}
			if f.badges.asked != test.asked {
				t.Errorf("asked for %s, want %s", f.badges.asked, test.asked)
			}
		})
	}
	t.Run("a forged cursor", func(t *testing.T) {
		a := get(t, f, "/v1/users/ada/conversations?cursor=forged")
		if got, want := a.story(t), "400 cursor must be the cursor of the previous page"; got != want {
			t.Errorf("answer is %s, want %s", got, want)
		}
	})
}

func TestBadgesQuery(t *testing.T) {
	ids := make([]string, badges.MaxBadges)
	for i := range ids {
		ids[i] = fmt.Sprintf("%q", fmt.Sprint("x", i))
	}
	thousand := strings.Join(ids, ",")
	t.Run("in the order given, each once", func(t *testing.T) {
		a := post(t, newFixture(t), "/v1/badges/query", plain, `{"user_ids":["chloe","ada","chloe"]}`)
		var got struct{ Badges []pubsub.Badge }
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != http.StatusOK {
			t.Fatalf("answer is %d %s", a.status, a.body)
		}
		if diff := cmp.Diff([]pubsub.Badge{badgeOf("chloe"), badgeOf("ada")}, got.Badges); diff != "" {
			t.Errorf("badges (-want +got):\n%s", diff)
		}
	})
	t.Run("the most allowed", func(t *testing.T) {
		a := post(t, newFixture(t), "/v1/badges/query", plain, `{"user_ids":[`+thousand+`]}`)
		if n := strings.Count(a.body, `"user_id"`); n != badges.MaxBadges {
			t.Errorf("status %d with %d badges", a.status, n)
		}
	})
	for _, test := range []struct{ name, body, want string }{
		{"nothing", "", "400 the body is empty"},
		{"no users", `{"user_ids":[]}`, "400 user_ids must not be empty: give a value, or leave it out"},
		{"too many", `{"user_ids":["y",` + thousand + `]}`, "400 user_ids must name 1 to 1000 users, names 1001"},
		{"a bad id", `{"user_ids":["ada",""]}`, "400 user_ids[1] must not be empty"},
		{"text in place of a list", `{"user_ids":"ada"}`, "400 user_ids must not be a JSON string"},
		{"no JSON", `user_ids=ada`, "400 the body is not valid JSON: invalid character 'u' at start of value at byte 0"},
		{"a brace too many", `{"user_ids":["ada"]}}`, "400 the body is not valid JSON: invalid character '}' after top-level value at byte 20"},
		{"a bad position", `{"user_ids":["ada"],"at_least":"x"}`, "400 at_least must be a token from a Badged-Position header"},
		{"a bad timeout", `{"user_ids":["ada"],"at_least":"1","timeout":"1h"}`, "400 timeout must be a duration such as 500ms or 2s, at most 30s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := post(t, newFixture(t), "/v1/badges/query", plain, test.body).story(t); got != test.want {
				t.Errorf("answer is %s, want %s", got, test.want)
			}
		})
	}
}

func TestAtLeastWaitsUntilFolded(t *testing.T) {
	for _, test := range []struct {
		name string
		send func(t *testing.T, f *fixture) answer
	}{
		{"one badge", func(t *testing.T, f *fixture) answer {
			return get(t, f, "/v1/users/ada/badge?at_least=4711")
		}},
		{"one badge, with a timeout", func(t *testing.T, f *fixture) answer {
			return get(t, f, "/v1/users/ada/badge?at_least=4711&timeout=30s")
		}},
		{"many badges", func(t *testing.T, f *fixture) answer {
			return post(t, f, "/v1/badges/query", plain, `{"user_ids":["ada"],"at_least":"4711","timeout":"30s"}`)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f := newFixture(t)
			f.badges.unfolded = 3
			if a := test.send(t, f); a.status != http.StatusOK {
				t.Errorf("answer is %d %s", a.status, a.body)
			}
			if want := slices.Repeat([]int64{4711}, 4); !slices.Equal(f.badges.looks, want) {
				t.Errorf("looked for %v, want %v", f.badges.looks, want)
			}
		})
	}
}

func TestAtLeastGivesUp(t *testing.T) {
	f := newFixture(t)
	if a := get(t, f, "/v1/users/ada/badge?at_least=4711&timeout=0s"); a.status != http.StatusOK {
		t.Errorf("what is folded: %d %s", a.status, a.body)
	}
	f.badges.unfolded = 1 << 30
	for _, timeout := range []string{"0s", "10ms"} {
		a := get(t, f, "/v1/users/ada/badge?at_least=4711&timeout="+timeout)
		if got, want := a.story(t), "504 not folded within "+timeout+"; ask again"; got != want {
			t.Errorf("answer is %s, want %s", got, want)
		}
	}
}

func TestAtLeastWhenTheLookFails(t *testing.T) {
	f := newFixture(t)
	f.badges.err = errors.New("relation badged.events_p00 is on fire")
	a := get(t, f, "/v1/users/ada/badge?at_least=4711")
	if a.status != http.StatusInternalServerError || len(f.badges.looks) != 1 {
		t.Errorf("answer is %d after %d looks, want 500 after one", a.status, len(f.badges.looks))
	}
}
