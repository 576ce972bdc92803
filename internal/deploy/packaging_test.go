package deploy

import (
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/badged/badged/internal/server/config"
)

// settings returns the environment variables of a server, with their defaults.
func settings(t *testing.T) map[string]string {
	t.Helper()
	return variables(t, &struct {
		config.Server `embed:""`
		config.Log    `embed:""`
	}{})
}

// variables returns the environment variables of a command, with their defaults.
func variables(t *testing.T, grammar any) map[string]string {
	t.Helper()
	parser, err := kong.New(grammar)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]string{}
	for _, f := range parser.Model.Flags {
		all["BADGED_"+strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))] = f.Default
		for _, name := range f.Envs { // such as BADGED_SHARDS
			all[name] = f.Default
		}
	}
	return all
}

// The files in deploy/ set only environment variables that exist.
func TestDeployedSettingsExist(t *testing.T) {
	known := settings(t)
	maps.Copy(known, variables(t, &struct {
		config.Relay `embed:""`
	}{}))
	maps.Copy(known, variables(t, &struct {
		config.Tail `embed:""`
	}{}))
	known["BADGED_VERSION"], known["BADGED_FILES"] = "", "" // the image and the folder of files for Compose
	known["BADGED_OWNER_URL"] = ""                          // only in the chart, which passes it under another name
	variable := regexp.MustCompile(`\bBADGED_[A-Z_]*[A-Z]\b`)
	seen := 0
	err := filepath.WalkDir(filepath.Join(root, "deploy"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		for _, name := range variable.FindAllString(string(b), -1) {
			seen++
			if _, ok := known[name]; !ok {
				t.Errorf("%s sets %s, which is not a setting", path, name)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen < 10 {
		t.Errorf("only %d settings are there", seen)
	}
	// The chart lists its secrets by flag name.
	secret := regexp.MustCompile(`include "badged\.secret" \(list \S+ "([a-z-]+)"`)
	for _, s := range secret.FindAllStringSubmatch(read(t, "deploy/helm/badged/templates/deployments.yaml"), -1) {
		if _, ok := known["BADGED_"+strings.ToUpper(strings.ReplaceAll(s[1], "-", "_"))]; !ok {
			t.Errorf("the chart has the secret %s, which is not a setting", s[1])
		}
	}
}

// The chart's job passes `badged archive` only flags that exist, and mounts the keys of the
// archive at the path that the flag names.
func TestTheChartArchives(t *testing.T) {
	job := read(t, "deploy/helm/badged/templates/archive.yaml")
	_, reference, _ := strings.Cut(read(t, "docs/cli.md"), "\n## `badged archive`\n")
	reference, _, _ = strings.Cut(reference, "\n## ")
	flags := regexp.MustCompile(`(?m)^ +- (--[a-z-]+)`).FindAllStringSubmatch(job, -1)
	if len(flags) < 4 {
		t.Errorf("the job gives only %q", flags)
	}
	for _, f := range flags {
		if !regexp.MustCompile(regexp.QuoteMeta(f[1]) + "[ =`]").MatchString(reference) {
			t.Errorf("the job gives %s, which is no flag of `badged archive`", f[1])
		}
	}
	file := regexp.MustCompile(`--archive-keys=(\S+)/\{\{ \.keys\.key \}\}`).FindStringSubmatch(job)
	if file == nil || !strings.Contains(job, "mountPath: "+file[1]+", readOnly: true") {
		t.Errorf("the keys are at %q, which is not mounted", file)
	}
}

// Deployments wait long enough for a server to stop, which takes up to twice the drain timeout.
func TestDeploymentsWaitForStops(t *testing.T) {
	drain, err := time.ParseDuration(settings(t)["BADGED_DRAIN_TIMEOUT"])
	if err != nil {
		t.Fatal(err)
	}
	for file, pattern := range map[string]string{
		"deploy/systemd/badged.service": `(?m)^TimeoutStopSec=(\d+)s$`,
		"deploy/compose.yaml":           `(?m)^  stop_grace_period: (\d+)s$`,
	} {
		given := regexp.MustCompile(pattern).FindStringSubmatch(read(t, file))
		if given == nil {
			t.Errorf("%s does not say how long a stop may take", file)
			continue
		}
		if seconds, _ := strconv.Atoi(given[1]); time.Duration(seconds)*time.Second <= 2*drain {
			t.Errorf("%s gives %d s to stop, of which draining may take %s", file, seconds, 2*drain)
		}
	}
}

// The systemd units of relays and tails run commands that exist, with as few rights as the unit
// of the server.
func TestUnitsOfRelaysAndTails(t *testing.T) {
	reference := read(t, "docs/cli.md")
	_, rights, _ := strings.Cut(read(t, "deploy/systemd/badged.service"), "\nDynamicUser=yes\n")
	for name, command := range map[string]string{"relay": "relay run", "tail": "tail"} {
		unit := read(t, "deploy/systemd/badged-"+name+".service")
		start := "\nExecStart=/usr/local/bin/badged " + command + " --config ${CREDENTIALS_DIRECTORY}/" + name + ".yaml\n"
		if !strings.Contains(unit, start) || !strings.Contains(unit, "\nLoadCredential="+name+".yaml:/etc/badged/"+name+".yaml\n") {
			t.Errorf("the unit of %s does not run %q with its settings", name, command)
		}
		if !strings.Contains(reference, "\nUsage: badged "+command+" [flags]\n") {
			t.Errorf("badged has no command %q", command)
		}
		if _, own, _ := strings.Cut(unit, "\nDynamicUser=yes\n"); rights == "" || own != rights {
			t.Errorf("the unit of %s has other rights than badged.service", name)
		}
	}
}

// The Compose files of relays and tails run commands that exist, with as few rights as the
// server has. They pass on every setting that says where to connect.
func TestComposeFilesOfRelaysAndTails(t *testing.T) {
	reference := read(t, "docs/cli.md")
	server := read(t, "deploy/compose.yaml")
	for name, grammar := range map[string]any{
		"relay": &struct {
			config.Relay `embed:""`
		}{},
		"tail": &struct {
			config.Tail `embed:""`
		}{},
	} {
		file := read(t, "deploy/compose."+name+".yaml")
		command := regexp.MustCompile(`(?m)^    command: \[(.*)\]$`).FindStringSubmatch(file)
		if command == nil || !strings.Contains(reference, "\nUsage: badged "+strings.ReplaceAll(command[1], ", ", " ")+" [flags]\n") {
			t.Errorf("compose.%s.yaml runs %q, which is no command", name, command)
		}
		for _, line := range []string{"read_only: true\n", "cap_drop: [ALL]\n", `security_opt: ["no-new-privileges:true"]` + "\n", "restart: unless-stopped\n", "stop_grace_period: 20s\n"} {
			if !strings.Contains(server, "\n  "+line) || !strings.Contains(file, "\n    "+line) {
				t.Errorf("compose.%s.yaml or compose.yaml lacks %q", name, line)
			}
		}
		for variable := range variables(t, grammar) {
			if variable != "BADGED_SHARD" && variable != "BADGED_HELP" && !strings.Contains(file, "\n      "+variable+": ${"+variable) {
				t.Errorf("compose.%s.yaml has no %s", name, variable)
			}
		}
	}
}

// Images and actions of other projects are pinned by digest, since their authors can move a tag.
// badged's own image is not: users build it or choose its version.
func TestPinned(t *testing.T) {
	for file, pattern := range map[string]string{
		"deploy/compose.yaml":           `(?m)^ +image: (?P<name>\S+)$`,
		".github/workflows/ci.yml":      `(?m)^ +(?:- )?uses: (?P<name>\S+)`,
		".github/workflows/release.yml": `(?m)^ +(?:- )?uses: (?P<name>\S+)`,
	} {
		named := regexp.MustCompile(pattern).FindAllStringSubmatch(read(t, file), -1)
		if len(named) < 3 {
			t.Errorf("%s names only %q", file, named)
		}
		for _, n := range named {
			if !strings.HasPrefix(n[1], "badged:") && !regexp.MustCompile(`@(sha256:[0-9a-f]{64}|[0-9a-f]{40})$`).MatchString(n[1]) {
				t.Errorf("%s names %s without a digest", file, n[1])
			}
		}
	}
}

// The image contains only a static program, runs as an unprivileged user, and is built from
// pinned images.
func TestDockerfile(t *testing.T) {
	text := strings.ReplaceAll(read(t, "deploy/Dockerfile"), "\\\n", " ")
	var from []string
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, "FROM "); ok {
			from = append(from, strings.TrimSpace(rest))
		}
	}
	if len(from) != 2 || !regexp.MustCompile(`^gcr\.io/distroless/static-\w+:nonroot@sha256:[0-9a-f]{64}$`).MatchString(from[1]) {
		t.Fatalf("the stages are made from %q", from)
	}
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(read(t, "go.mod"))[1]
	if !regexp.MustCompile(`golang:` + regexp.QuoteMeta(goVersion) + `\.\d+-\w+@sha256:[0-9a-f]{64} AS build$`).MatchString(from[0]) {
		t.Errorf("it is built with %s, and not with a release of Go %s, which go.mod asks for", from[0], goVersion)
	}
	for _, want := range []string{"CGO_ENABLED=0", "-trimpath", "internal/base/version.stamp=$VERSION", "\nUSER 65532:65532\n", "\nHEALTHCHECK ", `ENTRYPOINT ["/usr/local/bin/badged"]`} {
		if !strings.Contains(text, want) {
			t.Errorf("it lacks %s", want)
		}
	}
}
