package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestCandidatesOfCompletion(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  []string
	}{
		{[]string{"mig"}, []string{"migrate"}},
		{[]string{"migrate", ""}, []string{"up", "status", "grant"}},
		{[]string{"--config", "a.yaml", "migrate", "st"}, []string{"status"}},
		{[]string{"--config=a.yaml", "migrate", "st"}, []string{"status"}},
		{[]string{"serve", "--database-u"}, []string{"--database-url"}},
		{[]string{"serve", "--log-format", ""}, []string{"text", "json"}},
		{[]string{"serve", "--log-format=j"}, []string{"--log-format=json"}},
		{[]string{"serve", "--log-format", "=", "j"}, []string{"json"}},
		{[]string{"serve", "--log-format", "="}, []string{"text", "json"}},
		{[]string{"serve", "--database-url", ""}, nil},
		{[]string{"completion", "z"}, []string{"zsh"}},
		{[]string{"completion", "zsh", ""}, nil},
		{[]string{"compl"}, []string{"completion"}}, // complete is hidden
	} {
		t.Run(strings.Join(c.words, " "), func(t *testing.T) {
			out := mustDo(t, append([]string{"complete", "--"}, c.words...)...)
			if got := strings.Fields(out); !slices.Equal(got, c.want) {
				t.Errorf("candidates %q, want %q", got, c.want)
			}
		})
	}
	if out := mustDo(t, "complete"); !strings.Contains(out, "\nserve\n") {
		t.Errorf("without words there are these candidates:\n%s", out)
	}
}

// Bash runs its script with a badged that prints the words it is called with.
func TestCompletionInBash(t *testing.T) {
	dir := t.TempDir()
	program := "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "badged"), []byte(program), 0o755); err != nil {
		t.Fatal(err)
	}
	script := mustDo(t, "completion", "bash") + `
COMP_WORDS=(badged user show "a b" ""); COMP_CWORD=4
_badged
printf '[%s]' "${COMPREPLY[@]}"
complete -p badged
`
	cmd := exec.CommandContext(t.Context(), "bash", "-c", script)
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	if want := "[complete][--][user][show][a b]complete -o default -F _badged badged\n"; err != nil || string(out) != want {
		t.Errorf("bash completes %q (%v), want %q", out, err, want)
	}
}
