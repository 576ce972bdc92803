package config

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Setting is the value of one setting of a server, and where it was set.
type Setting struct {
	// Name is the name of the flag.
	Name string `json:"name"`
	// Value is the value as the command line would have it. Secrets in it are hidden.
	Value string `json:"value"`
	// Source is "flag", "default", "environment BADGED_…" or FILE:LINE.
	Source string `json:"source"`
}

// Report is the result of checking the settings of a server.
type Report struct {
	// Settings are all settings in the order of `serve --help`.
	Settings []Setting `json:"settings"`
	// Mistakes are errors: with them, a server does not start, or does not work as intended.
	Mistakes []string `json:"mistakes"`
	// Warnings are about settings that are valid but risky, and about settings that are ignored.
	Warnings []string `json:"warnings"`
}

// Check reads the settings of a server from flags, the environment and a file, and reports all
// mistakes, not only the first. `args` must select a command of parser that has the flags of
// `serve`, and s must be the variable in which this command stores its settings. Check stores the
// settings in s. If a value cannot be read, it stores the default. The environment and the file may
// also have settings of other commands.
func Check(parser *kong.Kong, args []string, s *Server) (r Report) {
	given, broken := r.trace(parser, args)
	r.readEnvironment(parser.Model)
	fromFile := new(file)
	for _, f := range given.Flags() {
		source, err := set(f, given, fromFile)
		if err != nil {
			broken[f.Name] = true
			r.mistake(source, reasonFor(f, err))
		}
		if broken[f.Name] {
			source = "default, because the given value cannot be read"
			f.Tag.Envs = nil                  // Reset must ignore the environment; f.Envs does not change
			if err := f.Reset(); err != nil { // fails only if the definition of the flag in this program is wrong
				r.mistake(source, err.Error())
			}
		}
		path, isFile := f.Target.Interface().(FileFlag)
		switch {
		case isFile:
			var mistakes []error
			fromFile, mistakes = readFile(path, parser.Model)
			for _, err := range mistakes {
				r.Mistakes = append(r.Mistakes, err.Error())
			}
		case len(f.Envs) > 0: // a flag without an environment variable is not a setting of the server
			r.Settings = append(r.Settings, Setting{f.Name, shown(f), source})
		}
	}
	if err := s.Validate(); err != nil {
		for mistake := range strings.SplitSeq(err.Error(), "\n") { // joined errors
			// If --roles could not be read, the default roles are set. Then omit errors about
			// settings that a role requires: they are not about the intended roles.
			misleads := broken["roles"] && strings.Contains(mistake, " role ")
			if !misleads {
				r.Mistakes = append(r.Mistakes, mistake)
			}
		}
	}
	r.Warnings = append(append(r.Warnings, fromFile.unused(given.Flags())...), s.risks()...)
	return r
}

// trace parses the command line. kong stops at the first argument that it refuses. So trace reports
// this argument, removes it and parses again, until kong accepts all remaining arguments. It also
// returns the names of the flags that it removed.
func (r *Report) trace(parser *kong.Kong, args []string) (given *kong.Context, refused map[string]bool) {
	refused = map[string]bool{}
	known := flagsOf(parser.Model)
	for {
		given, err := kong.Trace(parser, args)
		if err = cmp.Or(err, given.Error); err == nil {
			return given, refused
		}
		at := len(args) - len(given.Path[len(given.Path)-1].Remainder())
		name, _, hasValue := strings.Cut(strings.TrimPrefix(args[at], "--"), "=")
		end := at + 1
		if known[name] != nil && strings.HasPrefix(args[at], "--") {
			refused[name] = true
			switch {
			case hasValue:
			case end == len(args):
				err = fmt.Errorf("--%s needs a value", name)
			default:
				end++
			}
		}
		r.mistake("command line", err.Error())
		args = slices.Delete(slices.Clone(args), at, end)
	}
}

// readEnvironment warns about variables whose names begin with BADGED_ and are not settings.
func (r *Report) readEnvironment(app *kong.Application) {
	variables := map[string]bool{}
	for _, f := range flagsOf(app) {
		for _, name := range f.Tag.Envs {
			variables[name] = true
		}
	}
	for _, v := range slices.Sorted(slices.Values(os.Environ())) {
		name, _, _ := strings.Cut(v, "=")
		if strings.HasPrefix(name, "BADGED_") && !variables[name] {
			r.Warnings = append(r.Warnings, fmt.Sprintf("environment: %s is not a setting%s", name, suggest(name, variables)))
		}
	}
}

// set sets a flag from the first source that has a value for it: the command line, the
// environment, the file, the default. It returns the name of this source.
func set(f *kong.Flag, args *kong.Context, fromFile *file) (source string, err error) {
	for _, p := range args.Path {
		if p.Flag == f {
			f.Apply(args.Value(p))
			return "flag", checkEnum(f)
		}
	}
	var given any
	if name, text, ok := inEnvironment(f); ok {
		source, given = "environment "+name, text
	} else if given, err = fromFile.value(f); given == nil && err == nil {
		return "default", f.Reset()
	} else {
		source = fromFile.position(fromFile.lines[f.Name])
	}
	if err == nil {
		f.Target.SetZero()
		err = f.Parse(kong.Scan().PushTyped(given, kong.FlagValueToken), f.Target)
	}
	return source, cmp.Or(err, checkEnum(f))
}

// checkEnum checks the value of a flag against its enum. Its error text is the same as kong's.
func checkEnum(f *kong.Flag) error {
	for _, item := range itemsOf(f) {
		if f.Enum != "" && !f.EnumMap()[item] {
			return fmt.Errorf("--%s must be one of %s but got %q", f.Name, `"`+strings.Join(f.EnumSlice(), `","`)+`"`, item)
		}
	}
	return nil
}

// itemsOf returns the items of a list flag, or the single value, as text.
func itemsOf(f *kong.Flag) (items []string) {
	if !f.IsSlice() {
		return []string{fmt.Sprint(f.Target.Interface())}
	}
	for i := range f.Target.Len() {
		items = append(items, fmt.Sprint(f.Target.Index(i).Interface()))
	}
	return items
}

// reasonFor returns the text of err. If the flag may contain a secret, the text does not show
// the value.
func reasonFor(f *kong.Flag, err error) string {
	if isSecret(f.Name) {
		return "--" + f.Name + " cannot be read"
	}
	return err.Error()
}

func (r *Report) mistake(path, text string) { r.Mistakes = append(r.Mistakes, path+": "+text) }

// shown returns the value of a flag for display, with secrets hidden.
func shown(f *kong.Flag) string {
	items := itemsOf(f)
	for i := range items {
		items[i] = hide(f.Name, items[i])
	}
	return strings.Join(items, string(f.Tag.Sep))
}
