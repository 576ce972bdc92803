package config

import (
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

// namesOf returns the names of all flags that a file or the environment may
// set.
func namesOf(app *kong.Application) map[string]bool {
	known := map[string]bool{}
	var visit func(n *kong.Node)
	visit = func(n *kong.Node) {
		for _, flag := range n.Flags {
			known[flag.Name] = true
		}
		for _, child := range n.Children {
			visit(child)
		}
	}
	visit(app.Node)
	delete(known, "help")
	return known
}

// variableOf returns the environment variable of a flag.
func variableOf(f *kong.Flag) string {
	if f.Name == shardFlag {
		return shardVariable
	}
	return "BADGED_" + envName(f.Name)
}

// The variable of --shard has all shards, and its name says so.
const shardFlag, shardVariable = "shard", "BADGED_SHARDS"

func envName(flag string) string { return strings.ToUpper(strings.ReplaceAll(flag, "-", "_")) }

// readArgs reads flags, and returns the path of the file that --config names.
func (r *Report) readArgs(args []string, flags []*kong.Flag) (given map[string]value, path string) {
	given = map[string]value{}
	byName := map[string]*kong.Flag{}
	for _, f := range flags {
		byName[f.Name] = f
	}
	for i := 0; i < len(args); i++ {
		name, text, hasText := strings.Cut(strings.TrimPrefix(args[i], "--"), "=")
		f, isSetting := byName[name]
		switch {
		case !strings.HasPrefix(args[i], "--"):
			r.mistake("command line", fmt.Sprintf("unexpected argument %s", args[i]))
			continue
		case !isSetting && name != "config":
			r.mistake("command line", fmt.Sprintf("unknown flag --%s%s", name, suggest(name, byName)))
			continue
		case hasText:
		case isSetting && f.IsBool():
			text = "true"
		case i+1 == len(args):
			r.mistake("command line", fmt.Sprintf("--%s lacks a value", name))
			continue
		default:
			i++
			text = args[i]
		}
		if name == "config" {
			path = text
			continue
		}
		if before, twice := given[name]; twice && f.IsSlice() {
			text = fmt.Sprint(before.given) + string(f.Tag.Sep) + text
		}
		given[name] = value{text, "flag"}
	}
	return given, path
}

// readEnvironment warns about variables that look like settings but are not.
func (r *Report) readEnvironment(known map[string]bool) {
	variables := map[string]bool{}
	for name := range known {
		variables["BADGED_"+envName(name)] = true
	}
	delete(variables, "BADGED_"+envName(shardFlag))
	variables[shardVariable] = true
	for _, v := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "BADGED_") && !variables[name] {
			r.Warnings = append(r.Warnings, fmt.Sprintf("environment: %s is not a setting%s", name, suggest(name, variables)))
		}
	}
}

// readFile reads the settings of a file, each with its line.
func (r *Report) readFile(path string, known map[string]bool) map[string]value {
	if path == "" {
		return nil
	}
	f, err := os.Open(path) //nolint:gosec // the file that the operator names
	if err != nil {
		r.Mistakes = append(r.Mistakes, fmt.Sprintf("--config: %v", err))
		return nil
	}
	defer f.Close()
	var document yaml.Node
	decoder := yaml.NewDecoder(f)
	err = decoder.Decode(&document)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		r.mistake(path, strings.TrimPrefix(err.Error(), "yaml: "))
		return nil
	case err == nil && !isLast(decoder):
		r.mistake(path, secondDocument)
	}
	if len(document.Content) == 0 { // empty, or comments only
		return nil
	}
	root := document.Content[0]
	if root.Kind != yaml.MappingNode {
		r.mistake(path, "want settings by name, each once, such as log-level: debug")
		return nil
	}
	values := map[string]value{}
	for i := 0; i+1 < len(root.Content); i += 2 {
		key, node := root.Content[i], root.Content[i+1]
		where := fmt.Sprintf("%s:%d", path, key.Line)
		var given any
		_, twice := values[key.Value]
		switch err := node.Decode(&given); {
		case !known[key.Value] || key.Value == "config":
			r.mistake(where, fmt.Sprintf("%q is not a setting%s", key.Value, suggest(key.Value, known)))
		case twice:
			r.mistake(where, fmt.Sprintf("%q appears twice", key.Value))
		case err != nil:
			r.mistake(where, fmt.Sprintf("%q cannot be read", key.Value))
		case given != nil:
			values[key.Value] = value{file{key.Value: given}, where}
		}
	}
	return values
}

// suggest returns a question with the known name nearest to an unknown one, or
// "" if none is near.
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
