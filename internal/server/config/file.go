package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// FileFlag is the flag that names the configuration file. A setting is read from this file if
// neither the command line nor the environment sets it.
type FileFlag string

// BeforeResolve implements kong's hook. It reports unknown settings before kong reports missing
// settings. A misspelt name causes both errors, and the unknown name explains why the setting is
// missing.
func (FileFlag) BeforeResolve(ctx *kong.Context, trace *kong.Path) error {
	path, _ := ctx.FlagValue(trace.Flag).(FileFlag)
	f, mistakes := readFile(path, ctx.Model)
	ctx.AddResolver(f)
	return errors.Join(mistakes...)
}

// file has the settings of a configuration file, and their lines, by the names of their flags.
type file struct {
	path   string
	values map[string]any
	lines  map[string]int
}

// readFile reads settings from YAML or JSON: an object whose keys are names of flags of app. It
// returns all mistakes; their texts do not show values, which may be secrets. If path is "", it
// returns an empty file.
func readFile(path FileFlag, app *kong.Application) (f *file, mistakes []error) {
	f = &file{path: string(path), values: map[string]any{}, lines: map[string]int{}}
	mistake := func(n *yaml.Node, format string, args ...any) {
		mistakes = append(mistakes, fmt.Errorf("%s: %s", f.position(n.Line), fmt.Sprintf(format, args...)))
	}
	if path == "" {
		return f, nil
	}
	content, err := os.ReadFile(kong.ExpandPath(f.path))
	if err != nil {
		return f, []error{fmt.Errorf("--config: %w", err)}
	}
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	var document yaml.Node
	err = decoder.Decode(&document)
	switch {
	case errors.Is(err, io.EOF): // empty, or comments only
		return f, nil
	case err != nil:
		return f, []error{fmt.Errorf("%s: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))}
	case !errors.Is(decoder.Decode(new(yaml.Node)), io.EOF):
		mistakes = append(mistakes, fmt.Errorf("%s: it has a second document, or something after the first: put all settings into one document", path))
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		mistake(root, "want settings by name, each once, such as log-level: debug")
		return f, mistakes
	}
	known := flagsOf(app)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		var given any
		_, twice := f.lines[key.Value]
		switch err := root.Content[i+1].Decode(&given); {
		case known[key.Value] == nil || key.Value == "config":
			mistake(key, "%q is not a setting%s", key.Value, suggest(key.Value, known))
		case twice:
			mistake(key, "%q appears twice", key.Value)
		case err != nil:
			mistake(key, "%q cannot be read", key.Value)
		default:
			f.values[key.Value], f.lines[key.Value] = given, key.Line
		}
	}
	return f, mistakes
}

// unused returns a warning for each setting of the file that is not in flags. Such a setting is not
// a mistake, since several commands may share a file.
func (f *file) unused(flags []*kong.Flag) (warnings []string) {
	known := map[string]bool{}
	for _, flag := range flags {
		known[flag.Name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(f.lines)) {
		if !known[name] {
			warnings = append(warnings, fmt.Sprintf("%s: %q is a setting of other commands, which the server ignores%s", f.position(f.lines[name]), name, suggest(name, known)))
		}
	}
	return warnings
}

// position returns "FILE:LINE".
func (f *file) position(line int) string { return fmt.Sprintf("%s:%d", f.path, line) }

// Validate implements kong.Resolver. It does nothing, since FileFlag has reported the mistakes.
func (f *file) Validate(*kong.Application) error { return nil }

// Resolve implements kong.Resolver.
func (f *file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if _, _, ok := inEnvironment(flag); ok { // the environment overrides the file; kong alone would let the file override the environment
		return nil, nil //nolint:nilnil // kong's way to say: not set here
	}
	value, err := f.value(flag)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.position(f.lines[flag.Name]), err)
	}
	return value, nil
}

// value returns the value that the file has for a flag, as text or a list of texts, or nil if
// the file does not set the flag.
func (f *file) value(flag *kong.Flag) (any, error) {
	switch value := f.values[flag.Name].(type) {
	case nil:
		return nil, nil //nolint:nilnil // as in Resolve
	case []any:
		if !flag.IsSlice() {
			break
		}
		// Return a list, not one text joined with commas: a secret may contain a comma.
		items := make([]any, len(value))
		for i, item := range value {
			text, ok := scalar(item)
			if !ok {
				return nil, fmt.Errorf("item %d of %s must be text or a number", i+1, flag.Name)
			}
			items[i] = text
		}
		return items, nil
	case map[string]any:
		if flag.Name != "shard" {
			break
		}
		items := make([]any, 0, len(value))
		for _, name := range slices.Sorted(maps.Keys(value)) {
			url, ok := scalar(value[name])
			if !ok {
				return nil, fmt.Errorf("%s.%s must be text", flag.Name, name)
			}
			items = append(items, name+"="+url)
		}
		return items, nil
	default:
		if text, ok := scalar(value); ok {
			return text, nil
		}
	}
	if flag.IsSlice() {
		return nil, fmt.Errorf("%s must be text or a list", flag.Name)
	}
	return nil, fmt.Errorf("%s must be text, a number, true or false", flag.Name)
}

// scalar returns a single value as the text that the command line would have. ok is false if the
// value is not a scalar.
func scalar(value any) (text string, ok bool) {
	switch value.(type) {
	case string, bool, int, float64:
		return fmt.Sprint(value), true
	}
	return "", false
}

// inEnvironment returns the environment variable that sets a flag, and its value.
func inEnvironment(flag *kong.Flag) (name, text string, ok bool) {
	for _, name := range flag.Tag.Envs {
		if text, ok := os.LookupEnv(name); ok {
			return name, text, true
		}
	}
	return "", "", false
}

// flagsOf returns all flags of all commands, except --help, by name.
func flagsOf(app *kong.Application) map[string]*kong.Flag {
	known := map[string]*kong.Flag{}
	_ = kong.Visit(app, func(v kong.Visitable, next kong.Next) error {
		if f, ok := v.(*kong.Flag); ok && f != app.HelpFlag {
			if other := known[f.Name]; other == nil || len(other.Tag.Envs) == 0 { // if several commands have the flag, prefer one that can also be set in the environment
				known[f.Name] = f
			}
		}
		return next(nil)
	})
	return known
}

// suggest returns a question that proposes the most similar known name, or "" if no known name is
// similar.
func suggest[V any](name string, known map[string]V) string {
	best, least := "", len(name)/3+1
	for _, k := range slices.Sorted(maps.Keys(known)) {
		d := distance(strings.ToLower(strings.ReplaceAll(name, "_", "-")), strings.ToLower(strings.ReplaceAll(k, "_", "-")))
		if d < least {
			best, least = k, d
		}
	}
	if best == "" {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", best)
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
