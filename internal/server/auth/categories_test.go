package auth_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/badged/badged/internal/devtest/snippets"
	"github.com/badged/badged/internal/server/auth"
)

// A token may be restricted to categories. One whose restriction cannot be understood
// is refused by the name of the claim: to ignore it would lift the restriction.
func TestTokensOfCategories(t *testing.T) {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{"h=HS256:" + secret}})
	if err != nil {
		t.Fatal(err)
	}
	many := strings.TrimSuffix(strings.Repeat(`"x",`, 33), ",")
	for _, test := range []struct {
		claim string
		want  []string
		wrong string
	}{
		{`["likes","chat"]`, []string{"chat", "likes"}, ""},
		{`["chat","chat"]`, []string{"chat"}, ""},
		{`["Chlo\u00e9 🙂"]`, []string{"Chloé 🙂"}, ""},
		{`[]`, nil, "must name 1 to 32 categories, names 0"},
		{`[` + many + `]`, nil, "must name 1 to 32 categories, names 33"},
		{`"chat"`, nil, "must be an array of strings"},
		{`null`, nil, "must be an array of strings"},
		{`{"chat":true}`, nil, "must be an array of strings"},
		{`[null]`, nil, "must be an array of strings"},
		{`[["chat"]]`, nil, "must be an array of strings"},
		{`["chat",7]`, nil, "must be an array of strings"},
		{`["chat",""]`, nil, "has a category, number 2, that must not be empty"},
		{`["` + strings.Repeat("x", 65) + `"]`, nil, "has a category, number 1, that must have parts of at most 64 characters, has one of 65"},
		{`["a\u0000b"]`, nil, "has a category, number 1, that must not hold control characters"},
	} {
		token := signText(t, `{"alg":"HS256","kid":"h"}`, fmt.Sprintf(`{"sub":"ada","exp":%d,"badged_categories":%s}`, time.Now().Add(time.Hour).Unix(), test.claim))
		id, err := tokens.Authenticate(t.Context(), token)
		if test.wrong != "" {
			if err == nil || err.Error() != "bad token: badged_categories "+test.wrong {
				t.Errorf("%s: error %v", test.claim, err)
			}
			continue
		}
		if err != nil || !slices.Equal(id.Categories, test.want) {
			t.Errorf("%s: %q, error %v", test.claim, id.Categories, err)
		}
	}
	twice := signText(t, `{"alg":"HS256","kid":"h"}`, fmt.Sprintf(`{"sub":"ada","exp":%d,"badged_categories":["a"],"badged_categories":["b"]}`, time.Now().Add(time.Hour).Unix()))
	if id, err := tokens.Authenticate(t.Context(), twice); err == nil {
		t.Errorf("a claim that is given twice is accepted as %q", id.Categories)
	}
	for _, claim := range []string{"Badged_Categories", "BADGED_CATEGORIES", "badged_category", "badged_", "badged_rooms", `badged_categorie\u017f`, "b\\u0061dged_Categories"} {
		for _, claims := range []string{`"%s":["chat"]`, `"badged_categories":["chat"],"%s":["likes"]`, `"%s":["likes"],"badged_categories":["chat"]`} {
			token := signText(t, `{"alg":"HS256","kid":"h"}`, fmt.Sprintf(`{"sub":"ada","exp":%d,`+claims+`}`, time.Now().Add(time.Hour).Unix(), claim))
			const wrong = "is not known: the only claim that begins with badged_ is badged_categories, in this spelling"
			if id, err := tokens.Authenticate(t.Context(), token); err == nil || !strings.HasPrefix(err.Error(), "bad token: claim \"") || !strings.HasSuffix(err.Error(), wrong) {
				t.Errorf("%s: %+v, error %v", claims, id, err)
			}
		}
	}
	others := sign(t, jwt.SigningMethodHS256, "h", claimsOf(map[string]any{"badged": 7, "categories": 7, "example.com/badged_categories": 7, "Badge": 7}), []byte(secret))
	if id, err := tokens.Authenticate(t.Context(), others); err != nil || id.Categories != nil {
		t.Errorf("claims of others restrict to %q, error %v", id.Categories, err)
	}
}

func TestSignForCategories(t *testing.T) {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{"h=HS256:" + secret}})
	if err != nil {
		t.Fatal(err)
	}
	signed, err := tokens.Sign("ada", time.Minute, time.Now(), "likes", "chat")
	if err != nil {
		t.Fatal(err)
	}
	if id, err := tokens.Authenticate(t.Context(), signed); err != nil || !slices.Equal(id.Categories, []string{"chat", "likes"}) {
		t.Errorf("%+v, error %v", id, err)
	}
	if _, err := tokens.Sign("ada", time.Minute, time.Now(), ""); err == nil || !strings.Contains(err.Error(), `category "" must not be empty`) {
		t.Errorf("error %v", err)
	}
	if _, err := tokens.Sign("ada", time.Minute, time.Now(), make([]string, 33)...); err == nil || !strings.Contains(err.Error(), "at most 32 categories, not 33") {
		t.Errorf("error %v", err)
	}
}

func TestClaimsOfThePage(t *testing.T) {
	block := snippets.With(t, "docs/clients.md", "badged_categories", "json")
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: []string{"h=HS256:" + secret}, Now: func() time.Time { return time.Unix(1792996400, 0) }})
	if err != nil {
		t.Fatal(err)
	}
	id, err := tokens.Authenticate(t.Context(), signText(t, `{"alg":"HS256","kid":"h"}`, strings.TrimSpace(block.Text)))
	if err != nil || !slices.Equal(id.Categories, []string{"chat", "likes"}) {
		t.Errorf("%s: categories %q, error %v", block, id.Categories, err)
	}
}
