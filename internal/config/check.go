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
	flags := serverFlags(&r)
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
	r.decode(flags, given)
	r.Warnings = append(r.Warnings, r.Server.risks()...)
	return r
}

// serverFlags returns the flags of `serve`.
func serverFlags(r *Report) []*kong.Flag {
	parser, err := parserOf(&checkedServer{}, nil)
	if err != nil { // a mistake in the grammar
		r.Mistakes = append(r.Mistakes, err.Error())
		return nil
	}
	return slices.DeleteFunc(slices.Clone(parser.Model.Flags), func(f *kong.Flag) bool { return f.Name == "help" })
}

// parserOf returns a parser of a grammar that takes values from resolve only.
func parserOf(grammar any, resolve kong.ResolverFunc) (*kong.Kong, error) {
	options := []kong.Option{kong.Name("serve"), kong.Exit(func(int) {})}
	if resolve != nil {
		options = append(options, kong.Resolvers(resolve))
	}
	return kong.New(grammar, options...)
}

// decode parses each setting on its own, so that one bad value does not hide
// others, and then validates the whole.
func (r *Report) decode(flags []*kong.Flag, given map[string]value) {
	resolve := func(only string) kong.ResolverFunc {
		return func(_ *kong.Context, _ *kong.Path, f *kong.Flag) (any, error) {
			v, ok := given[f.Name]
			if !ok || only != "" && f.Name != only {
				return nil, nil //nolint:nilnil // kong's way to say: not set here
			}
			if isFile, ok := v.given.(file); ok {
				return isFile.value(f)
			}
			return v.given, nil
		}
	}
	broken := map[string]bool{}
	for _, f := range flags {
		v, ok := given[f.Name]
		if !ok {
			continue
		}
		if err := parseWith(&checkedServer{}, resolve(f.Name)); err != nil {
			broken[f.Name] = true
			r.mistake(v.source, reasonFor(f, err))
			delete(given, f.Name)
		}
	}
	var all checkedServer
	if err := parseWith(&all, resolve("")); err != nil {
		r.Mistakes = append(r.Mistakes, err.Error())
	}
	r.Server, r.Log = all.Server, all.Log
	for _, err := range separate(r.Server.Validate()) {
		// Complaints about a default that replaces an unreadable value mislead.
		misleads := broken["roles"] && strings.Contains(err.Error(), " role ")
		if !misleads {
			r.Mistakes = append(r.Mistakes, err.Error())
		}
	}
	r.list(flags, given, &all, broken)
}

// parseWith fills a grammar as kong does, without validation.
func parseWith(grammar any, resolve kong.ResolverFunc) error {
	parser, err := parserOf(grammar, resolve)
	if err != nil {
		return err
	}
	c, err := kong.Trace(parser, nil)
	if err != nil {
		return err
	}
	for _, step := range []func() error{func() error { return c.Error }, c.Reset, c.Resolve, func() error {
		_, err := c.Apply()
		return err
	}} {
		if err := step(); err != nil {
			return err
		}
	}
	for _, f := range parser.Model.Flags {
		if err := checkEnum(f); err != nil {
			return err
		}
	}
	return nil
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

// list fills Settings.
func (r *Report) list(flags []*kong.Flag, given map[string]value, all *checkedServer, broken map[string]bool) {
	parser, err := parserOf(all, nil)
	if err != nil {
		return // already reported
	}
	for _, model := range parser.Model.Flags {
		if !slices.ContainsFunc(flags, func(f *kong.Flag) bool { return f.Name == model.Name }) {
			continue
		}
		s := Setting{Name: model.Name, Source: "default", Value: shown(model.Name, string(model.Tag.Sep), model.Target)}
		if v, ok := given[model.Name]; ok {
			s.Source = v.source
		}
		if broken[model.Name] {
			s.Source = "default, because the given value cannot be read"
		}
		r.Settings = append(r.Settings, s)
	}
}

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
