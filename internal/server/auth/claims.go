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

// claims has the claims of a token, as far as badged uses them. They are decoded without
// encoding/json, which would accept "SUB" as "sub", although RFC 7519 says that names are
// case-sensitive. The method UnmarshalJSON also refuses a token with a repeated name, as RFC 7519
// permits.
type claims struct {
	subject, issuer    string
	audience           jwt.ClaimStrings
	expires, notBefore *jwt.NumericDate
	// issued is zero if the token has no iat.
	issued time.Time
	// categories are the categories that the token is restricted to, sorted; nil means no
	// restriction.
	categories []string
}

// faultError reports an invalid claim or header of a token. Its text may be shown to clients.
type faultError struct{ part, message string }

// Error implements error.
func (e *faultError) Error() string { return e.part + " " + e.message }

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
		claim := name.String() // a copy, since the next read reuses the memory of name
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

// set sets one claim. It ignores claims that badged does not use. But it refuses unknown claims
// with the prefix badged_: such a claim may be a misspelt restriction, and if it were ignored,
// the token would have no restriction.
func (c *claims) set(claim string, value jsontext.Value) (err error) {
	switch claim {
	case "sub":
		c.subject, err = textOf(claim, value)
	case "iss":
		c.issuer, err = textOf(claim, value)
	case "aud":
		if json.Unmarshal(value, &c.audience) != nil {
			err = &faultError{claim, "must be a string or an array of strings"}
		}
	case "exp":
		c.expires, err = timeOf(claim, value)
	case "nbf":
		c.notBefore, err = timeOf(claim, value)
	case "iat":
		var issued *jwt.NumericDate
		if issued, err = timeOf(claim, value); err == nil {
			c.issued = issued.Time
		}
	case categoriesClaim:
		c.categories, err = categoriesOf(claim, value)
	default:
		if n := len(ownPrefix); len(claim) >= n && strings.EqualFold(claim[:n], ownPrefix) {
			err = &faultError{fmt.Sprintf("claim %.40q", claim), "is not known: the only claim that begins with " + ownPrefix + " is " + categoriesClaim + ", in this spelling"}
		}
	}
	return err
}

const (
	// ownPrefix is the prefix of claims that only badged defines.
	ownPrefix = "badged_"
	// categoriesClaim restricts a token to categories.
	categoriesClaim = "badged_categories"
	// maxCategories is the maximum number of categories in a token.
	maxCategories = 32
)

// categoriesOf decodes and sorts the categories of a token. It refuses an empty or malformed
// claim: if the claim were ignored, the token would have no restriction.
func categoriesOf(claim string, value jsontext.Value) ([]string, error) {
	var given []*string
	if value.Kind() != jsontext.KindBeginArray || json.Unmarshal(value, &given) != nil {
		return nil, &faultError{claim, "must be an array of strings"}
	}
	if len(given) == 0 || len(given) > maxCategories {
		return nil, &faultError{claim, fmt.Sprintf("must name 1 to %d categories, names %d", maxCategories, len(given))}
	}
	names := make([]string, len(given))
	for i, name := range given {
		if name == nil {
			return nil, &faultError{claim, "must be an array of strings"}
		}
		if reason := events.CheckCategory(*name); reason != "" {
			return nil, &faultError{claim, fmt.Sprintf("has a category, number %d, that %s", i+1, reason)}
		}
		names[i] = *name
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

func textOf(claim string, value jsontext.Value) (string, error) {
	var text string
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &text) != nil {
		return "", &faultError{claim, "must be a string"}
	}
	return text, nil
}

// endOfTime is the end of the year 9999, the last year of RFC 3339.
const endOfTime = 253_402_300_799

// timeOf decodes seconds since 1970.
func timeOf(claim string, value jsontext.Value) (*jwt.NumericDate, error) {
	if value.Kind() != jsontext.KindNumber {
		return nil, &faultError{claim, "must be a number of seconds"}
	}
	var seconds float64
	if json.Unmarshal(value, &seconds) != nil || seconds < 0 || seconds > endOfTime {
		return nil, &faultError{claim, "must be seconds from 1970 to the year 9999"}
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

// GetIssuedAt implements jwt.Claims. It returns nil: authenticate checks iat.
func (c *claims) GetIssuedAt() (*jwt.NumericDate, error) { return nil, nil } //nolint:nilnil // jwt's way to say: not given
