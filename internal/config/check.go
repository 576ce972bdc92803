package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Setting is one setting of a server and its source.
type Setting struct {
	// Name is the name of the flag.
	Name string `json:"name"`
	// Value is in command line form, with secrets hidden.
	Value string `json:"value"`
	// Source is "flag", "default", "environment BADGED_…" or FILE:LINE.
	Source string `json:"source"`
}

// Report is the result of checking the settings of a server.
type Report struct {
	// Server and Log are the effective settings, with defaults in place of
	// values that cannot be parsed.
	Server Server `json:"-"`
	Log    Log    `json:"-"`
	// Settings are all settings in the order of `serve --help`.
	Settings []Setting `json:"settings"`
	// Mistakes keep a server from starting or from behaving as intended.
	Mistakes []string `json:"mistakes"`
	// Warnings are about risky settings with which a server starts.
	Warnings []string `json:"warnings"`
}

// checkedServer is the grammar of `serve` without its validation, so that one
// mistake does not hide the others.
type checkedServer struct {
	Server Server `embed:""`
	Log    Log    `embed:""`
}

// value is a given value and its source.
type value struct {
	given  any // as a kong.Resolver returns it
	source string
}

// Check reads the settings of a server from flags, the environment and a file,
// as `serve` does, and reports all mistakes rather than the first. args are the
// arguments of `serve`. app is the whole command line: the environment and the
// file may also hold settings of other commands.
func Check(args []string, app *kong.Application) Report {
	var r Report
	var all checkedServer
	parser, err := kong.New(&all, kong.Name("serve"), kong.NoDefaultHelp())
	if err != nil { // a mistake in the grammar
		r.Mistakes = append(r.Mistakes, err.Error())
		return r
	}
	flags := parser.Model.Flags
	known := namesOf(app)
	given, path := r.readArgs(args, flags)
	if path == "" {
		path = os.Getenv("BADGED_CONFIG")
	}
	fromFile := r.readFile(path, known)
	r.readEnvironment(known)
	for _, f := range flags {
		name := variableOf(f)
		_, isGiven := given[f.Name]
		if text, ok := os.LookupEnv(name); ok && !isGiven {
			given[f.Name], isGiven = value{text, "environment " + name}, true
		}
		if v, ok := fromFile[f.Name]; ok && !isGiven {
			given[f.Name] = v
		}
	}
	broken := r.decode(flags, given)
	r.Server, r.Log = all.Server, all.Log
	for _, err := range separate(r.Server.Validate()) {
		// Complaints about a default that replaces an unreadable value mislead.
		misleads := broken["roles"] && strings.Contains(err.Error(), " role ")
		if !misleads {
			r.Mistakes = append(r.Mistakes, err.Error())
		}
	}
	r.Warnings = append(r.Warnings, r.Server.risks()...)
	return r
}

// decode sets each flag by itself, so that one bad value does not hide others, and fills
// Settings. It returns the names of the flags whose values cannot be read.
func (r *Report) decode(flags []*kong.Flag, given map[string]value) (broken map[string]bool) {
	broken = map[string]bool{}
	for _, f := range flags {
		f.Tag.Envs = nil // Check has read the environment
		s := Setting{Name: f.Name, Source: "default"}
		err := f.Reset()
		if v, ok := given[f.Name]; ok && err == nil {
			s.Source = v.source
			if err = set(f, v.given); err != nil {
				broken[f.Name] = true
				r.mistake(v.source, reasonFor(f, err))
				s.Source = "default, because the given value cannot be read"
				err = f.Reset()
			}
		}
		if err != nil { // a mistake in the grammar
			r.Mistakes = append(r.Mistakes, err.Error())
		}
		s.Value = shown(f.Name, string(f.Tag.Sep), f.Target)
		r.Settings = append(r.Settings, s)
	}
	return broken
}

// set sets a flag as kong does.
func set(f *kong.Flag, given any) (err error) {
	if isFile, ok := given.(file); ok {
		if given, err = isFile.value(f); err != nil {
			return err
		}
	}
	f.Target.SetZero()
	if err := f.Parse(kong.Scan().PushTyped(given, kong.FlagValueToken), f.Target); err != nil {
		return err
	}
	return checkEnum(f)
}

// checkEnum checks a flag against its enum, with kong's error text.
func checkEnum(f *kong.Flag) error {
	if f.Enum == "" {
		return nil
	}
	items := []string{fmt.Sprint(f.Target.Interface())}
	if f.Target.Kind() == reflect.Slice {
		items = nil
		for i := range f.Target.Len() {
			items = append(items, fmt.Sprint(f.Target.Index(i).Interface()))
		}
	}
	for _, item := range items {
		if !slices.Contains(f.EnumSlice(), item) {
			return fmt.Errorf("--%s must be one of %s but got %q", f.Name, `"`+strings.Join(f.EnumSlice(), `","`)+`"`, item)
		}
	}
	return nil
}

// reasonFor returns the text of an error, without the value if it may hold a
// secret.
func reasonFor(f *kong.Flag, err error) string {
	if isSecret(f.Name) {
		return "--" + f.Name + " cannot be read"
	}
	return strings.TrimPrefix(err.Error(), "configuration file: ")
}

// mistake adds a mistake.
func (r *Report) mistake(where, what string) { r.Mistakes = append(r.Mistakes, where+": "+what) }

// shown returns a value for display, with secrets hidden.
func shown(name, sep string, v reflect.Value) string {
	var items []string
	if v.Kind() == reflect.Slice {
		for i := range v.Len() {
			items = append(items, hide(name, fmt.Sprint(v.Index(i).Interface())))
		}
		return strings.Join(items, sep)
	}
	return hide(name, fmt.Sprint(v.Interface()))
}

// separate splits a joined error.
func separate(err error) []error {
	if err == nil {
		return nil
	}
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) || reflect.TypeOf(err) != reflect.TypeOf(errors.Join(errors.New(""))) {
		return []error{err}
	}
	var all []error
	for _, e := range joined.Unwrap() {
		all = append(all, separate(e)...)
	}
	return all
}
