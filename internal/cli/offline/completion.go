package offline

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/cli/terminal"
)

// Completion is `badged completion`.
type Completion struct {
	Shell string `arg:"" enum:"bash,fish,zsh" help:"bash, fish or zsh."`
}

// completionScripts has a script for each shell. With the script, the shell calls `badged complete`
// for the candidates. If there are no candidates, the shell completes names of files.
var completionScripts = map[string]string{
	"bash": `_badged() {
  local IFS=$'\n'
  COMPREPLY=($(badged complete -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o default -F _badged badged
`,
	"fish": `function __badged
  badged complete -- (commandline -opc)[2..] "$(commandline -ct)" 2>/dev/null
end
complete -c badged -f -n 'test -n "$(__badged)"' -a '(__badged)'
`,
	"zsh": `#compdef badged
_badged() {
  local -a candidates
  candidates=(${(f)"$(badged complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)"})
  if (( ${#candidates} )); then compadd -- $candidates; else _files; fi
}
compdef _badged badged
`,
}

// Run prints the script.
func (c Completion) Run(_ context.Context, streams terminal.Streams) error {
	_, err := fmt.Fprint(streams.Out, completionScripts[c.Shell])
	return err
}

// Complete is `badged complete`, which completionScripts call.
type Complete struct {
	Words []string `arg:"" optional:"" passthrough:"" help:"The words after badged, up to the cursor."`
}

// Run prints the candidates for the last word, one on each line.
func (c Complete) Run(kctx *kong.Context, streams terminal.Streams) error {
	words := c.Words
	if len(words) > 0 && words[0] == "--" {
		words = words[1:]
	}
	for _, word := range candidates(kctx.Model.Node, words) {
		if _, err := fmt.Fprintln(streams.Out, word); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the completions of the last word: commands, flags, or the values of a flag
// or argument that has a fixed set of values.
func candidates(node *kong.Node, words []string) (found []string) {
	if len(words) == 0 {
		words = []string{""}
	}
	if words[len(words)-1] == "=" { // bash splits --flag=value into three words
		words = append(words, "")
	}
	words = slices.DeleteFunc(words, func(w string) bool { return w == "=" })
	last := words[len(words)-1]
	offer := func(prefix string, values ...string) {
		for _, v := range values {
			if v != "" && strings.HasPrefix(prefix+v, last) {
				found = append(found, prefix+v)
			}
		}
	}

	flags, arguments := slices.Clone(node.Flags), 0
	flag := func(word string) *kong.Flag { // returns the flag called word, if it needs a value
		i := slices.IndexFunc(flags, func(f *kong.Flag) bool { return "--"+f.Name == word && !f.IsBool() })
		if i < 0 {
			return nil
		}
		return flags[i]
	}
	var open *kong.Flag // the flag whose value is the next word
	for _, word := range words[:len(words)-1] {
		child := slices.IndexFunc(node.Children, func(n *kong.Node) bool { return n.Name == word || slices.Contains(n.Aliases, word) })
		switch {
		case open != nil:
			open = nil
		case strings.HasPrefix(word, "-"):
			open = flag(word)
		case child >= 0:
			node = node.Children[child]
			flags = append(flags, node.Flags...)
		default:
			arguments++
		}
	}

	name, _, hasValue := strings.Cut(last, "=")
	switch {
	case open != nil:
		offer("", open.EnumSlice()...)
	case hasValue && flag(name) != nil:
		offer(name+"=", flag(name).EnumSlice()...)
	case strings.HasPrefix(last, "-"):
		for _, f := range flags {
			if !f.Hidden {
				offer("--", f.Name)
			}
		}
	default:
		for _, child := range node.Children {
			if !child.Hidden {
				offer("", child.Name)
			}
		}
		if arguments < len(node.Positional) {
			offer("", node.Positional[arguments].EnumSlice()...)
		}
	}
	return found
}
