package deploy

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// fakeGo replaces the program go for .ci/vuln: govulncheck answers with $VULN_<database>, and the
// module proxy with $MODULE.
const fakeGo = `#!/bin/sh
case "$1 $2 $3" in
"tool "*)
  for db; do :; test "$last" = -db && break; last=$db; done
  case "$db" in
  https://vuln.go.dev) verdict=$VULN_ONLINE ;;
  file://*/osv) verdict=$VULN_MODULE ;;
  *) verdict=$VULN_NAMED ;;
  esac
  case "$verdict" in
  unreachable) echo "govulncheck: fetching vulnerabilities: no such host"; exit 1 ;;
  broken) echo "govulncheck: loading packages: does not compile"; exit 1 ;;
  found) echo "Vulnerability #1: GO-2026-0001"; exit 3 ;;
  esac
  echo "DB updated: $verdict 12:00:00 +0000 UTC"
  ;;
"mod download -json") echo "$MODULE" ;;
"list -m -u") printf %s "$RETRACTED" ;;
"list -m -versions") echo "1.26.0" ;;
"env "*) echo go1.26.0 ;;
esac
`

// fakeNPM answers every audit with $AUDIT.
const fakeNPM = "#!/bin/sh\necho \"$AUDIT\"\n"

// If a source of vulnerabilities is missing or old, .ci/vuln says what was not checked and exits
// with its own status, so that the result is not taken for "no vulnerabilities".
func TestVulnerabilityChecks(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"go": fakeGo, "npm": fakeNPM} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	day := func(ago int) string { return time.Now().AddDate(0, 0, -ago).UTC().Format(time.DateOnly) }
	module := func(ago int) string {
		info := filepath.Join(t.TempDir(), "info")
		if err := os.WriteFile(info, []byte(`{"Time":"`+day(ago)+`T00:00:00Z"}`), 0o600); err != nil {
			t.Fatal(err)
		}
		return `{"Dir":"/modules/vulndb","Info":"` + info + `"}`
	}
	const (
		clean = `{"auditReportVersion":2,"vulnerabilities":{"a":{"name":"a","severity":"low"}}}`
		bad   = `{"auditReportVersion":2,"vulnerabilities":{"leftpad":{"name":"leftpad","range":"<2","severity":"high"}}}`
		none  = `{"error":{"code":"ENOAUDIT"}}`
	)
	refused := `{"Error":"module golang.org/x/vulndb: not found"}`
	for _, tc := range []struct {
		name string
		env  map[string]string
		exit int
		says string
	}{
		{"all is well", map[string]string{"VULN_ONLINE": day(1), "AUDIT": clean}, 0, " days old"},
		{"found", map[string]string{"VULN_ONLINE": "found", "AUDIT": clean}, 1, "GO-2026-0001"},
		{"the check fails", map[string]string{"VULN_ONLINE": "broken", "AUDIT": clean}, 1, "does not compile"},
		{"from GOPROXY", map[string]string{"VULN_ONLINE": "unreachable", "VULN_MODULE": "0001-01-01", "MODULE": module(3), "AUDIT": clean}, 0, "/modules/vulndb/data/osv is "},
		{"found from GOPROXY", map[string]string{"VULN_ONLINE": "unreachable", "VULN_MODULE": "found", "MODULE": module(3), "AUDIT": clean}, 1, "GO-2026-0001"},
		{"an old module", map[string]string{"VULN_ONLINE": "unreachable", "VULN_MODULE": "0001-01-01", "MODULE": module(90), "AUDIT": clean}, 75, "is older than 30 days"},
		{"older is allowed", map[string]string{"VULN_ONLINE": "unreachable", "VULN_MODULE": "0001-01-01", "MODULE": module(90), "AUDIT": clean, "VULNDB_MAX_AGE": "100"}, 0, ""},
		{"no database", map[string]string{"VULN_ONLINE": "unreachable", "MODULE": refused, "AUDIT": clean}, 75, "NOT CHECKED"},
		{"no mirror", map[string]string{"VULNDB": "https://mirror", "VULN_NAMED": "unreachable", "VULN_ONLINE": day(1), "AUDIT": clean}, 75, "neither the database https://mirror nor"},
		{"a folder of unknown age", map[string]string{"VULNDB": "file:///reports", "VULN_NAMED": "0001-01-01", "AUDIT": clean}, 75, "of unknown age"},
		{"npm refuses audits", map[string]string{"VULN_ONLINE": day(1), "AUDIT": none}, 75, "npm: the registry does not answer audits of web/package-lock.json"},
		{"found in npm", map[string]string{"VULN_ONLINE": day(1), "AUDIT": bad}, 1, "leftpad <2: high"},
		{"found, and not checked", map[string]string{"VULN_ONLINE": "found", "AUDIT": none}, 1, "NOT CHECKED"},
		{"a retracted module", map[string]string{"VULN_ONLINE": day(1), "AUDIT": clean, "RETRACTED": "a.test/b v1.0.0 is retracted: [it leaks]\n"}, 1, "it leaks"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			cmd := exec.CommandContext(t.Context(), filepath.Join(root, ".ci/vuln"))
			cmd.Stdout, cmd.Stderr = &out, &out
			cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"), "VULNDB=", "VULNDB_MAX_AGE=")
			for name, value := range tc.env {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			err := cmd.Run()
			var exit *exec.ExitError
			if err != nil && !errors.As(err, &exit) {
				t.Fatal(err)
			}
			if got := cmd.ProcessState.ExitCode(); got != tc.exit || !strings.Contains(out.String(), tc.says) {
				t.Errorf("it exits with %d, want %d, and should say %q:\n%s", got, tc.exit, tc.says, &out)
			}
		})
	}
}
