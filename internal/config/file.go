package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"
)

// LoadFile reads settings from YAML, and so from JSON: an object whose keys
// are names of flags of app. It reports unknown keys first, since a misspelt
// setting makes others seem missing.
func LoadFile(r io.Reader, app *kong.Application) (kong.Resolver, error) {
	values := map[string]any{}
	decoder := yaml.NewDecoder(r)
	err := decoder.Decode(&values)
	var wrongType *yaml.TypeError
	switch {
	case errors.As(err, &wrongType): // its text quotes the file, which holds secrets
		return nil, errors.New("configuration file: want settings by name, each once, such as log-level: debug")
	case err != nil && !errors.Is(err, io.EOF):
		return nil, fmt.Errorf("configuration file: %w", err)
	case err == nil && !isLast(decoder):
		return nil, errors.New("configuration file: " + secondDocument)
	}
	f := file(values)
	return f, f.Validate(app)
}

// secondDocument is the mistake of a file with settings that nothing would read.
const secondDocument = "it has a second document, or something after the first: put all settings into one document"

// isLast reports whether nothing follows the document that was decoded.
func isLast(d *yaml.Decoder) bool { return errors.Is(d.Decode(new(yaml.Node)), io.EOF) }

// file resolves flags from the values of a configuration file.
type file map[string]any

// Validate implements kong.Resolver.
func (f file) Validate(app *kong.Application) error {
	known := namesOf(app)
	for _, key := range slices.Sorted(maps.Keys(f)) {
		if !known[key] || key == "config" {
			return fmt.Errorf("configuration file: %q is not a setting%s", key, suggest(key, known))
		}
	}
	return nil
}

// Resolve implements kong.Resolver.
func (f file) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if value, ok := f[flag.Name]; !ok || value == nil || inEnvironment(flag) {
		return nil, nil //nolint:nilnil // kong's way to say: not set here
	}
	return f.value(flag)
}

// value returns the file's value of a flag in command line form.
func (f file) value(flag *kong.Flag) (any, error) {
	value := f[flag.Name]
	if list, ok := value.([]any); ok && flag.IsSlice() {
		// A list instead of one text: a secret may contain a comma.
		items := make([]any, len(list))
		for i, item := range list {
			if items[i], ok = scalar(item); !ok {
				return nil, fmt.Errorf("configuration file: item %d of %s must be text or a number", i+1, flag.Name)
			}
		}
		return items, nil
	}
	if object, ok := value.(map[string]any); ok && flag.Name == shardFlag {
		items := make([]any, 0, len(object))
		for _, name := range slices.Sorted(maps.Keys(object)) {
			url, ok := scalar(object[name])
			if !ok {
				return nil, fmt.Errorf("configuration file: %s.%s must be text", flag.Name, name)
			}
			items = append(items, name+"="+url)
		}
		return items, nil
	}
	text, ok := scalar(value)
	switch {
	case ok:
		return text, nil
	case flag.IsSlice():
		return nil, fmt.Errorf("configuration file: %s must be text or a list", flag.Name)
	}
	return nil, fmt.Errorf("configuration file: %s must be text, a number, true or false", flag.Name)
}

// inEnvironment reports whether the environment sets a flag. It overrides the
// file; kong's own order is the reverse.
func inEnvironment(flag *kong.Flag) bool {
	return slices.ContainsFunc(flag.Tag.Envs, func(name string) bool {
		_, ok := os.LookupEnv(name)
		return ok
	})
}

// scalar returns a value in command line form.
func scalar(value any) (text string, ok bool) {
	switch value.(type) {
	case string, bool, int, float64:
		return fmt.Sprint(value), true
	}
	return "", false
}
