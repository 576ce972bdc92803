package auth

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"

	"github.com/badged/badged/events"
)

// claims are the claims of a token that badged uses. Names are compared as RFC
// 7519 requires: case matters, and a duplicate is refused. The encoding/json
// package would accept "SUB" as "sub".
type claims struct {
	subject, issuer    string
	audience           jwt.ClaimStrings
	expires, notBefore *jwt.NumericDate
	// issued is zero if the token does not say when it was issued, or not as a time.
	issued time.Time
	// categories are those that the token is restricted to, sorted; nil for no
	// restriction.
	categories []string
}

// claimError reports an invalid claim. It is safe to show.
type claimError struct{ claim, message string }

// Error implements error.
func (e *claimError) Error() string { return e.claim + " " + e.message }

// UnmarshalJSON implements json.Unmarshaler.
func (c *claims) UnmarshalJSON(b []byte) error {
	*c = claims{}
	d := jsontext.NewDecoder(strings.NewReader(string(b)))
	if d.PeekKind() != jsontext.KindBeginObject {
		return errors.New("the claims are not a JSON object")
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() != jsontext.KindEndObject {
		name, err := d.ReadToken()
		if err != nil {
			return err
		}
		claim := name.String() // the next read reuses its memory
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		if err := c.set(claim, value); err != nil {
			return err
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return errors.New("something follows the claims")
	}
	return nil
}

// set sets one claim. Unused claims are ignored, except those that are meant for badged
// by their name: ignoring a misspelt restriction would lift it.
func (c *claims) set(claim string, value jsontext.Value) (err error) {
	switch claim {
	case "sub":
		c.subject, err = textOf(claim, value)
	case "iss":
		c.issuer, err = textOf(claim, value)
	case "aud":
		if json.Unmarshal(value, &c.audience) != nil {
			err = &claimError{claim, "must be a string or an array of strings"}
		}
	case "exp":
		c.expires, err = timeOf(claim, value)
	case "nbf":
		c.notBefore, err = timeOf(claim, value)
	case "iat":
		if issued, wrong := timeOf(claim, value); wrong == nil {
			c.issued = issued.Time
		}
	case categoriesClaim:
		c.categories, err = categoriesOf(claim, value)
	default:
		if n := len(ownPrefix); len(claim) >= n && strings.EqualFold(claim[:n], ownPrefix) {
			err = &claimError{fmt.Sprintf("claim %.40q", claim), "is not known: of the claims that begin with " + ownPrefix + " there is " + categoriesClaim + ", spelt so"}
		}
	}
	return err
}

const (
	// ownPrefix begins the names of claims that only badged gives a meaning.
	ownPrefix = "badged_"
	// categoriesClaim restricts a token to categories.
	categoriesClaim = "badged_categories"
	// maxCategories is the most that a token may name.
	maxCategories = 32
)

// categoriesOf decodes the categories of a token, and sorts them. A claim that says
// nothing useful is an error: ignoring it would lift the restriction.
func categoriesOf(claim string, value jsontext.Value) ([]string, error) {
	var given []*string
	if value.Kind() != jsontext.KindBeginArray || json.Unmarshal(value, &given) != nil {
		return nil, &claimError{claim, "must be an array of strings"}
	}
	if len(given) == 0 || len(given) > maxCategories {
		return nil, &claimError{claim, fmt.Sprintf("must name 1 to %d categories, names %d", maxCategories, len(given))}
	}
	names := make([]string, len(given))
	for i, name := range given {
		if name == nil {
			return nil, &claimError{claim, "must be an array of strings"}
		}
		if reason := events.CheckCategory(*name); reason != "" {
			return nil, &claimError{claim, fmt.Sprintf("has a category, number %d, that %s", i+1, reason)}
		}
		names[i] = *name
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func textOf(claim string, value jsontext.Value) (string, error) {
	var text string
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &text) != nil {
		return "", &claimError{claim, "must be a string"}
	}
	return text, nil
}

// endOfTime is the end of the year 9999, after which RFC 3339 has no times.
const endOfTime = 253_402_300_799

// timeOf decodes seconds since 1970.
func timeOf(claim string, value jsontext.Value) (*jwt.NumericDate, error) {
	if value.Kind() != jsontext.KindNumber {
		return nil, &claimError{claim, "must be a number of seconds"}
	}
	var seconds float64
	if json.Unmarshal(value, &seconds) != nil || seconds < 0 || seconds > endOfTime {
		return nil, &claimError{claim, "must be seconds from 1970 to the year 9999"}
	}
	whole, part := math.Modf(seconds)
	return &jwt.NumericDate{Time: time.Unix(int64(whole), int64(part*float64(time.Second)))}, nil
}

// GetSubject implements jwt.Claims.
func (c *claims) GetSubject() (string, error) { return c.subject, nil }

// GetIssuer implements jwt.Claims.
func (c *claims) GetIssuer() (string, error) { return c.issuer, nil }

// GetAudience implements jwt.Claims.
func (c *claims) GetAudience() (jwt.ClaimStrings, error) { return c.audience, nil }

// GetExpirationTime implements jwt.Claims.
func (c *claims) GetExpirationTime() (*jwt.NumericDate, error) { return c.expires, nil }

// GetNotBefore implements jwt.Claims.
func (c *claims) GetNotBefore() (*jwt.NumericDate, error) { return c.notBefore, nil }

// GetIssuedAt implements jwt.Claims. authenticate checks the time of issue.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // jwt's way to say: not given
