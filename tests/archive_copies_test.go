package tests

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A manifest with something that a later release has added is refused by every command that
// takes an archive, and stays as it is. Not parallel: a range is complete only once all older
// transactions have ended.
func TestArchiveOfALaterReleaseIsRefused(t *testing.T) {
	database, dir := oneDatabase(t), filepath.Join(t.TempDir(), "archive")
	p := serve(t, database)
	total(t, p, "ann", publish(t, p, delivered("lunch", 1, `"ann"`)))
	cutLog(t, database)
	must(t, archiving(database, dir)...)
	file := filepath.Join(dir, "manifest.json")
	manifest, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	later := strings.Replace(string(manifest), `"number": 1`, `"number": 1, "shape": "round"`, 1)
	if err := os.WriteFile(file, []byte(later), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		archiving(database, dir),
		{"verify", "--archive=" + dir, "--database-url=" + database},
		{"rebuild", "--archive=" + dir, "--database-url=" + database},
		{"user", "explain", "ann", "--archive=" + dir, "--database-url=" + database},
		{"user", "export", "ann", "--archive=" + dir, "--database-url=" + database},
		{"user", "erase", "ann", "--archive=" + dir, "--database-url=" + database},
		{"restore", "--from=" + dir, "--database-url=" + oneDatabase(t)},
	} {
		const want = `manifest.json has something that this release does not know (unknown field "shape"): use the release that wrote it, or a later one`
		if _, stderr, code := command(t, args...); code != 1 || !strings.Contains(stderr, want) {
			t.Errorf("%v exits with %d: %s", args, code, stderr)
		}
	}
	if now, err := os.ReadFile(file); err != nil || string(now) != later {
		t.Errorf("the manifest was changed: %v\n%s", err, now)
	}
}
