// Package broker parses the URLs of message brokers and returns connection options.
//
// It does not know which messages are read or published.
package broker

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// Address is a URL that may have several hosts.
type Address struct {
	Scheme         string
	User, Password string
	HasPassword    bool
	Hosts          []string
	Path           string
	// Query has the parameters that Take and List have not removed yet.
	Query url.Values
	// Text is the URL as given.
	Text string
}

// parseAddress parses a URL whose scheme is one of schemes. Its errors do not quote parts of the
// URL that may be secret.
func parseAddress(text string, schemes []string) (Address, error) {
	known := strings.Join(slices.Sorted(slices.Values(schemes)), "://, ") + "://"
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok || !slices.Contains(schemes, scheme) {
		if ok && len(scheme) < 16 && !strings.ContainsAny(scheme, ":@/ ") {
			return Address{}, fmt.Errorf("there is no broker for %s://; want %s", scheme, known)
		}
		return Address{}, fmt.Errorf("this is not the URL of a broker; want %s", known)
	}
	a := Address{Scheme: scheme, Text: text}
	authority, rest := cutAny(rest, "/?#")
	if i := strings.LastIndexByte(authority, '@'); i >= 0 {
		// Parse the user separately, because net/url does not accept several hosts.
		u, err := url.Parse("x://" + authority[:i] + "@host")
		if err != nil {
			return Address{}, errors.New("its user and password cannot be read; write their special characters as %XX")
		}
		a.User = u.User.Username()
		a.Password, a.HasPassword = u.User.Password()
		authority = authority[i+1:]
	}
	a.Hosts = strings.Split(authority, ",")
	for _, host := range a.Hosts {
		if u, err := url.Parse("x://" + host); err != nil || u.Hostname() == "" {
			return Address{}, errors.New("it needs HOST:PORT behind ://, or several with commas")
		}
	}
	u, err := url.Parse(rest)
	if err == nil {
		a.Path = strings.TrimPrefix(u.Path, "/")
		a.Query, err = url.ParseQuery(u.RawQuery)
	}
	if err != nil {
		return Address{}, errors.New("the part after its hosts cannot be read; write special characters as %XX")
	}
	return a, nil
}

// Form describes the URLs with one scheme.
type Form[T any] struct {
	// Name is the default name of the broker. Example is a URL, for error messages.
	Name, Example string
	// Parse removes the parameters that it uses from the address, and returns what the URL
	// describes.
	Parse func(Address) (T, error)
}

// maxName is the maximum length of a broker's name in bytes. There is a maximum because ids of
// events and names of consumer groups contain the name.
const maxName = 32

// Parse parses a URL. forms has the [Form] of each scheme. name is the URL's parameter `name`, or
// Form.Name if the URL does not have this parameter. shown is the URL without secrets. The error
// quotes no secrets.
func Parse[T any](text string, forms map[string]Form[T]) (parsed T, name, shown string, err error) {
	var none T
	a, err := parseAddress(text, slices.Collect(maps.Keys(forms)))
	if err != nil {
		return none, "", "", err
	}
	form := forms[a.Scheme]
	name, shown = cmp.Or(a.Take("name"), form.Name), a.Shown()
	parsed, err = form.Parse(a)
	if err == nil {
		err = a.Unknown()
	}
	if err != nil {
		return none, "", "", fmt.Errorf("%s: %w; want %s", shown, err, form.Example)
	}
	if len(name) > maxName || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == '/' || r > '~' }) {
		return none, "", "", fmt.Errorf("%s: the name must be 1 to %d characters without spaces and slashes", shown, maxName)
	}
	return parsed, name, shown, nil
}

// cutAny cuts a text before the first of the given characters.
func cutAny(text, characters string) (before, rest string) {
	if i := strings.IndexAny(text, characters); i >= 0 {
		return text[:i], text[i:]
	}
	return text, ""
}

// Take removes a parameter and returns its value. If the parameter is given twice, Take leaves it
// in Query, so that Unknown reports it.
func (a *Address) Take(parameter string) string {
	value := a.Query.Get(parameter)
	if len(a.Query[parameter]) == 1 {
		a.Query.Del(parameter)
	}
	return value
}

// List removes a parameter and returns its values. The values may be separated by commas, and the
// parameter may be repeated.
func (a *Address) List(parameter string) []string {
	values := SplitList(strings.Join(a.Query[parameter], ","))
	a.Query.Del(parameter)
	return values
}

// SplitList returns the elements of a comma-separated list.
func SplitList(text string) []string {
	return slices.DeleteFunc(strings.Split(text, ","), func(s string) bool { return s == "" })
}

// Unknown returns an error if Query still has a parameter: it is unknown or was given twice.
func (a *Address) Unknown() error {
	if len(a.Query) == 0 {
		return nil
	}
	name := slices.Min(slices.Collect(maps.Keys(a.Query)))
	if len(a.Query[name]) > 1 {
		return fmt.Errorf("the parameter %q is given twice", name)
	}
	return fmt.Errorf("there is no parameter %q", name)
}

// Shown returns the URL with secrets replaced.
func (a *Address) Shown() string {
	user := ""
	switch {
	case a.HasPassword:
		user = url.PathEscape(a.User) + ":***@"
	case a.User != "":
		user = "***@" // a NATS token
	}
	_, rest, _ := strings.Cut(a.Text, "://")
	authority, _ := cutAny(rest, "/?#")
	return a.Scheme + "://" + user + authority[strings.LastIndexByte(authority, '@')+1:] + "/" + a.Path
}
