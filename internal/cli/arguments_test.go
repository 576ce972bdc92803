package cli

import (
	"strings"
	"testing"
)

// An id that is not UTF-8 must not be taken for the id of another user, whichever command has it and
// wherever it is. No value is shown, since it may be a secret.
func TestArgumentsMustBeUTF8(t *testing.T) {
	t.Setenv("BADGED_DATABASE_URL", "postgres://127.0.0.1:1/chat")
	refused := func(t *testing.T, want string, args ...string) {
		t.Helper()
		r := badged(t, args...)
		if want = "badged: " + want + " is not valid UTF-8\nRun `badged --help` for what there is.\n"; r.code != exitUsage || r.out != "" || r.err != want {
			t.Errorf("%q: exit code %d, printed %q, stderr:\n%swant:\n%s", args, r.code, r.out, r.err, want)
		}
	}
	for _, command := range everyCommand(t) {
		refused(t, "argument "+[]string{"", "2", "3", "4"}[len(command)], append(command, "jos\xe9")...)
	}
	refused(t, "argument 1", "\xff")
	refused(t, "argument 2", "help", "\xff")
	refused(t, "argument 4", "user", "merge", "ada", "jos\xe9", "--yes")
	refused(t, "--user", "verify", "--user=jos\xe9")
	refused(t, "argument 3", "verify", "--user", "jos\xe9")
	refused(t, "argument 3", "config", "check", "\xff")
	refused(t, "argument 2", "conformance", "--\xff")
	refused(t, "argument 3", "conformance", "--", "\xff")
}

// Nor must a setting, such as a secret, be another one than the environment has.
func TestEnvironmentMustBeUTF8(t *testing.T) {
	t.Setenv("BADGED_JWT_KEYS", "k=HS256:0123456789abcdef0123456789abcde\xe9")
	for _, args := range [][]string{{"token", "ada"}, {"config", "check"}} {
		r := badged(t, args...)
		if r.code != exitUsage || r.out != "" || !strings.HasPrefix(r.err, "badged: BADGED_JWT_KEYS is not valid UTF-8\n") {
			t.Errorf("%q: exit code %d, printed %q, stderr %q", args, r.code, r.out, r.err)
		}
	}
}
