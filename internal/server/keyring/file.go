package keyring

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/rfc3339"
)

// Limits of a file.
const (
	maxKeys     = 1000
	maxPatterns = 100
)

// namePattern matches valid names of keys. The names appear in metrics, logs and answers.
var namePattern = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// ValidName reports whether name is valid for a key in a file.
func ValidName(name string) bool { return namePattern.MatchString(name) }

// fileParser parses a file of keys and collects its mistakes.
type fileParser struct {
	path     string
	mistakes []error
	// entry is the prefix of error messages: it names the key that is being parsed.
	entry string
}

func (p *fileParser) mistake(n *yaml.Node, format string, args ...any) {
	p.mistakes = append(p.mistakes, fmt.Errorf("%s:%d: %s%s", p.path, n.Line, p.entry, fmt.Sprintf(format, args...)))
}

// parseFile parses a file of keys in YAML or JSON. Its errors name the line and the key, and
// never contain a secret. If parseFile returns errors, do not use the keys, which are then
// incomplete.
func parseFile(path string, content []byte) ([]*Key, []error) {
	p := &fileParser{path: path}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	err := dec.Decode(&document)
	switch {
	case errors.Is(err, io.EOF):
		return nil, []error{fmt.Errorf("%s is empty: want keys, a list; to have none, write keys: []", path)}
	case err != nil:
		return nil, []error{fmt.Errorf("%s is neither YAML nor JSON: %w", path, err)}
	}
	if !errors.Is(dec.Decode(new(yaml.Node)), io.EOF) {
		p.mistakes = append(p.mistakes, fmt.Errorf("%s has a second document, or something after the first", path))
	}
	var keys []*Key
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		p.mistake(root, "want keys, a list")
		return nil, p.mistakes
	}
	fields := p.fields(root, "keys")
	list, ok := fields["keys"]
	switch {
	case !ok:
		p.mistake(root, "want keys, a list")
	case list.Kind != yaml.SequenceNode:
		p.mistake(list, "keys must be a list")
	case len(list.Content) > maxKeys:
		p.mistake(list, "the list has %d keys; at most %d are allowed", len(list.Content), maxKeys)
	default:
		for i, n := range list.Content {
			keys = append(keys, p.key(i, plain(n)))
		}
	}
	return keys, p.mistakes
}

// plain resolves an alias to its node.
func plain(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// fields returns the fields of a mapping by name. It reports unknown and repeated fields as
// mistakes.
func (p *fileParser) fields(n *yaml.Node, known ...string) map[string]*yaml.Node {
	fields := map[string]*yaml.Node{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		name := n.Content[i]
		switch _, twice := fields[name.Value]; {
		case !slices.Contains(known, name.Value):
			// Do not quote the name: if a secret was written without quotation marks, the name
			// may be part of the secret.
			p.mistake(name, "field %d is not known: want %s", i/2+1, strings.Join(known, ", "))
		case twice:
			p.mistake(name, "%s is given twice", name.Value)
		default:
			fields[name.Value] = plain(n.Content[i+1])
		}
	}
	return fields
}

// key reads entry i of the list.
func (p *fileParser) key(i int, n *yaml.Node) *Key {
	p.entry = fmt.Sprintf("key %d: ", i+1)
	defer func() { p.entry = "" }()
	k := &Key{}
	if n.Kind != yaml.MappingNode {
		p.mistake(n, "want name, kind, secret and what the key may do")
		return k
	}
	// Parse the name first, since error messages about other fields quote it.
	if name := new(fileParser).fields(n, "name")["name"]; name != nil && namePattern.MatchString(name.Value) {
		p.entry = fmt.Sprintf("key %s: ", name.Value)
	}
	f := p.fields(n, "name", "kind", "secret", "expires", "sources", "types", "users", "rooms", "read", "disconnect", "rate", "quota")
	k.Name = p.text(n, f["name"], "name", func(text string) string {
		if !namePattern.MatchString(text) {
			return "name must be letters, digits, dots, dashes and underscores, at most 63, and begin with a letter or digit"
		}
		return ""
	})
	k.Kind = Kind(p.text(n, f["kind"], "kind", func(text string) string {
		if !slices.Contains([]Kind{Publisher, Reader, Admin}, Kind(text)) {
			return "kind must be publisher, reader or admin"
		}
		return ""
	}))
	p.text(n, f["secret"], "secret", func(text string) (wrong string) {
		digits, ok := strings.CutPrefix(text, digestPrefix)
		if ok {
			k.digest, ok = parseDigest(digits)
		}
		if !ok {
			return "secret must be sha256: and 64 hexadecimal digits, and never the secret itself; `badged keys hash` reads a secret and prints that"
		}
		return ""
	})
	if at := f["expires"]; at != nil {
		var err error
		if k.expires, err = rfc3339.Parse(at.Value); err != nil {
			p.mistake(at, "expires must be a time such as 2027-01-31T23:59:59Z")
		}
	}
	k.sources = p.patterns(f["sources"], "sources", nil)
	k.types = p.patterns(f["types"], "types", checkType)
	k.users = p.patterns(f["users"], "users", nil)
	k.rooms = p.patterns(f["rooms"], "rooms", nil)
	k.reads = k.Kind != Publisher
	if read := f["read"]; read != nil && read.Decode(&k.reads) != nil {
		p.mistake(read, "read must be yes or no")
	}
	k.disconnects = k.Kind == Admin
	if may := f["disconnect"]; may != nil && may.Decode(&k.disconnects) != nil {
		p.mistake(may, "disconnect must be yes or no")
	}
	if rate := f["rate"]; rate != nil && (rate.Decode(&k.rate) != nil || math.IsNaN(k.rate) || math.IsInf(k.rate, 0) || k.rate <= 0) {
		p.mistake(rate, "rate must be a number of events a second, more than 0; leave it out for no limit")
	}
	if quota := f["quota"]; quota != nil && (quota.Decode(&k.quota) != nil || k.quota < 1) {
		p.mistake(quota, "quota must be a whole number of events a day, 1 or more; leave it out for no limit")
	}
	p.suit(k.Kind, f)
	return k
}

// suit reports a mistake for each field that has no effect on keys of the given kind. Otherwise
// the author of the file might rely on a limit that does not apply.
func (p *fileParser) suit(kind Kind, f map[string]*yaml.Node) {
	without := map[Kind][]string{
		Reader: {"sources", "types", "rooms", "read", "disconnect", "rate", "quota"},
		Admin:  {"sources", "types", "users", "rooms", "read", "disconnect", "rate", "quota"},
	}
	for _, name := range without[kind] {
		switch n := f[name]; {
		case n == nil:
		case kind == Reader:
			p.mistake(n, "a reader reads badges and publishes nothing: remove %s", name)
		default:
			p.mistake(n, "an admin may do everything: remove %s, or make the key a publisher's or reader's", name)
		}
	}
}

// text returns the value of a required text field. check returns an error message for a value,
// or "" if the value is valid.
func (p *fileParser) text(entry, n *yaml.Node, name string, check func(string) string) string {
	switch {
	case n == nil:
		p.mistake(entry, "%s is required", name)
		return ""
	case n.Kind != yaml.ScalarNode:
		p.mistake(n, "%s must be text", name)
		return ""
	}
	if wrong := check(n.Value); wrong != "" {
		p.mistake(n, "%s", wrong)
	}
	return n.Value
}

// patterns returns a list of patterns; a single text counts as a list with one pattern. check
// returns an error message for a pattern, or "". patterns returns nil if n is nil.
func (p *fileParser) patterns(n *yaml.Node, name string, check func(string) string) patterns {
	if n == nil {
		return nil
	}
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		items = n.Content
	}
	if len(items) == 0 || len(items) > maxPatterns {
		p.mistake(n, "%s must have 1 to %d entries, has %d; leave it out for no limit", name, maxPatterns, len(items))
		return nil
	}
	ps := make(patterns, 0, len(items))
	for _, item := range items {
		item = plain(item)
		wrong := ""
		switch {
		case item.Kind != yaml.ScalarNode || item.Value == "" || item.Tag == "!!null":
			wrong = "must be text"
		case strings.Contains(strings.TrimSuffix(item.Value, "*"), "*"):
			wrong = fmt.Sprintf("%q: an asterisk may only be at the end", item.Value)
		case check != nil:
			wrong = check(item.Value)
		}
		if wrong != "" {
			p.mistake(item, "%s: %s", name, wrong)
			continue
		}
		ps = append(ps, item.Value)
	}
	return ps
}

// checkType returns an error message if a pattern matches no type of event, for example because
// the type is misspelt.
func checkType(pattern string) string {
	var known []string
	for _, t := range events.Types() {
		if t.Reserved {
			continue
		}
		if (patterns{pattern}).match(string(t.Type)) {
			return ""
		}
		known = append(known, string(t.Type))
	}
	return fmt.Sprintf("%q matches no type of event that can be published: %s", pattern, strings.Join(known, ", "))
}
