package importing

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/bridge/traffic"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/projector/badges"
	"github.com/badged/badged/pubsub"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// folding is a target that folds before it answers what is folded.
type folding struct {
	*traffic.DatabaseTarget
	t testing.TB
	d *projectortest.Database
}

func (f folding) Badges(ctx context.Context, users []string, position int64) ([]pubsub.Badge, error) {
	f.d.Fold(f.t) //nolint:contextcheck // the projector runs until the test ends
	return f.DatabaseTarget.Badges(ctx, users, position)
}

// run imports texts from files and returns the differences.
func run(t *testing.T, d *projectortest.Database, change func(*Config), texts ...string) (Summary, []string, error) {
	t.Helper()
	cfg := Config{Target: folding{traffic.NewDatabaseTarget(d.Log, d.Reader), t, d}, Badges: d.Reader, Partitions: d.Log.Partitions()}
	dir := t.TempDir()
	for i, text := range texts {
		cfg.Files = append(cfg.Files, filepath.Join(dir, fmt.Sprintf("%d.csv", i)))
		if err := os.WriteFile(cfg.Files[i], []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var differences []string
	cfg.Different = func(d Difference) error {
		differences = append(differences, strings.TrimPrefix(d.String(), dir+"/"))
		return nil
	}
	if change != nil {
		change(&cfg)
	}
	s, err := Import(t.Context(), cfg)
	s.PublishSeconds, s.FoldSeconds = 0, 0
	return s, differences, err
}

const states = header +
	"ada,tea,12,7,,8 10-12,,11,\n" + // unread, with a mention
	"ben,tea,12,12,,,,,\n" + // read to the end
	"chloe,tea,12,7,none,8 10,,,\n" + // muted, and the last message is her own
	"dave,tea,12,15,mentions,,,,\n" + // read further than there are messages
	"ada,feed,3,1,,2 3,likes,,\n" +
	"ben,feed,3,3,,,likes,,true\n" + // marked as unread
	"eve,new,0,0,mentions,,,,\n" // no message yet

func TestImport(t *testing.T) {
	d := projectortest.New(t)
	got, differences, err := run(t, d, nil, states)
	want := Summary{
		Rows: 7, Users: 5, Conversations: 3, Events: 16,
		Deliveries: 6, Reads: 5, Levels: 3, Recalls: 1, Marks: 1,
	}
	if diff := cmp.Diff(want, got); err != nil || differences != nil || diff != "" {
		t.Fatalf("error %v, differences %q, summary (-want +got):\n%s", err, differences, diff)
	}
	for user, want := range map[string]struct {
		total, mentions int64
		categories      map[string]int64
	}{
		"ada":   {6, 1, map[string]int64{"chat": 4, "likes": 2}},
		"ben":   {1, 0, map[string]int64{"likes": 1}},
		"chloe": {0, 0, map[string]int64{}},
	} {
		b := d.Badge(t, user)
		totals := map[string]int64{}
		for name, n := range b.Categories {
			if n.Total > 0 {
				totals[name] = n.Total
			}
		}
		if b.Total != want.total || b.Mentions != want.mentions || !cmp.Equal(totals, want.categories) {
			t.Errorf("the badge of %s is %+v, want %+v", user, b, want)
		}
	}
	before := d.Dump(t)
	if n := d.Lines(t, `SELECT sum(greatest(reltuples, 0))::int FROM pg_class WHERE oid::regclass::text ~ '^badged.users_p..$'`)[0]; n != "5" {
		t.Errorf("the planner knows of %s users, want 5", n)
	}

	// Again: there is nothing to publish.
	if got, differences, err = run(t, d, nil, states); got.Events != 0 || differences != nil || err != nil {
		t.Errorf("the second import: %+v, differences %q, error %v", got, differences, err)
	}
	// Again, while the tables lag behind the first: the same events repeat.
	if got, differences, err = run(t, d, func(c *Config) { c.Badges = &lagging{Tables: c.Badges} }, states); got.Events != want.Events || differences != nil || err != nil {
		t.Errorf("an import that cannot see the first: %+v, differences %q, error %v", got, differences, err)
	}
	withoutPositions := func(dump string) string {
		var kept []string
		for line := range strings.Lines(dump) {
			if strings.Contains(line, "tea") || strings.Contains(line, "feed") || strings.Contains(line, "new") {
				kept = append(kept, line)
			}
		}
		return strings.Join(kept, "")
	}
	if diff := cmp.Diff(withoutPositions(before), withoutPositions(d.Dump(t))); diff != "" {
		t.Errorf("the tables changed (-first +repeated):\n%s", diff)
	}
}

// lagging shows tables as they were before anything was folded, for one chunk.
type lagging struct {
	Tables
	calls int
}

func (l *lagging) Stored(ctx context.Context, keys []badges.Key) ([]badges.Stored, error) {
	if l.calls++; l.calls > 1 {
		return l.Tables.Stored(ctx, keys)
	}
	for i := range keys {
		keys[i].UserID += " who does not exist"
	}
	return l.Tables.Stored(ctx, keys)
}

// A newer export adds only what is new.
func TestImportOfANewerExport(t *testing.T) {
	d := projectortest.New(t)
	if _, _, err := run(t, d, nil, states); err != nil {
		t.Fatal(err)
	}
	got, differences, err := run(t, d, nil, header+
		"ada,tea,13,10,,11-13,,11 12,\n"+ // read on, a new message, and a mention that the first lacked
		"ben,tea,12,12,,,tasks,,\n"+ // another category
		"chloe,tea,12,7,mentions,8 10,,,\n"+ // another level
		"dave,tea,12,15,mentions,,,,\n")
	want := Summary{Rows: 4, Users: 4, Conversations: 1, Events: 5, Deliveries: 3, Reads: 1, Levels: 1}
	if diff := cmp.Diff(want, got); err != nil || differences != nil || diff != "" {
		t.Errorf("error %v, differences %q, summary (-want +got):\n%s", err, differences, diff)
	}
	// Back to the former level, which is another change than the first.
	got, differences, err = run(t, d, nil, header+"chloe,tea,12,7,none,8 10,,,\n")
	if got.Levels != 1 || got.Events != 1 || differences != nil || err != nil {
		t.Errorf("the former level: %+v, differences %q, error %v", got, differences, err)
	}
}

// What the tables have beyond the file stays, and is reported.
func TestImportReportsDifferences(t *testing.T) {
	d := projectortest.New(t)
	d.Append(t, foldtest.Deliver("tea", 5, "ada"), foldtest.Event("read", events.ConversationRead, "tea", foldtest.UpTo(4), "ben"), foldtest.Deliver("tea", 6, "ben"))
	d.Append(t, events.Event{ID: "join", Source: "test", Type: events.RoomJoined, Data: events.Data{ConversationID: "hall", UserIDs: []string{"ada"}}})
	d.Fold(t)
	const file = header + "ada,tea,4,3,,4,,,\nben,tea,4,2,,3-4,,,\nada,hall,4,3,,4,,,\nchloe,tea,1,0,,1,,,\n"
	want := []string{
		`0.csv:2: user "ada", conversation "tea": last_seq is 4 in the file, 5 in badged`,
		`0.csv:2: user "ada", conversation "tea": unread is 1 in the file, 2 in badged`,
		`0.csv:3: user "ben", conversation "tea": last_seq is 4 in the file, 6 in badged`,
		`0.csv:3: user "ben", conversation "tea": read_seq is 2 in the file, 4 in badged`,
		`0.csv:3: user "ben", conversation "tea": unread is 2 in the file, 1 in badged`,
		`0.csv:3: user "ben", conversation "tea": first_unread_seq is 3 in the file, 6 in badged`,
		`0.csv:4: user "ada", conversation "hall": room is no in the file, the user is a member in badged`,
	}
	dry, now, err := run(t, d, func(c *Config) { c.DryRun = true }, file)
	if err != nil || dry.Events != 3 || len(now) == 0 || dry.RowsDifferent != 4 {
		t.Errorf("the dry run: %+v, error %v, differences\n%s", dry, err, strings.Join(now, "\n"))
	}
	if b := d.Badge(t, "chloe"); b.Version != 0 {
		t.Errorf("the dry run published: %+v", b)
	}
	got, differences, err := run(t, d, nil, file)
	if err == nil && got.Events != dry.Events {
		t.Errorf("the dry run counts %d events, the import %d", dry.Events, got.Events)
	}
	// The read position of ada moves, and message 4 joins message 5.
	if diff := cmp.Diff(want, differences); err != nil || diff != "" || got.RowsDifferent != 3 || got.Differences != 7 {
		t.Errorf("error %v, %+v, differences (-want +got):\n%s", err, got, diff)
	}
}

// Users of a conversation share events, and files are read in chunks.
func TestImportSharesEvents(t *testing.T) {
	d := projectortest.New(t)
	var file strings.Builder
	file.WriteString("user_id,conversation_id,last_seq,read_seq\n")
	const users = chunkRows + 10
	for i := range users {
		fmt.Fprintf(&file, "user%d,tea,9,6\n", i)
	}
	got, differences, err := run(t, d, nil, file.String())
	want := Summary{Rows: users, Users: users, Conversations: 1, Events: 8, Deliveries: 6, Reads: 2}
	if diff := cmp.Diff(want, got); err != nil || differences != nil || diff != "" {
		t.Errorf("error %v, %d differences, summary (-want +got):\n%s", err, len(differences), diff)
	}
}

func TestImportOfBadLines(t *testing.T) {
	d := projectortest.New(t)
	good, bad := states, header+"ada,other,1,0,,1,,,\nada,tea,x,0,,,,,\nada,tea,1,0,,1,,2,\n"
	var lines []string
	collect := func(c *Config) {
		lines = nil
		c.Bad = func(l *traffic.LineError) { lines = append(lines, filepath.Base(l.Error())) }
	}
	got, _, err := run(t, d, collect, good, bad)
	want := []string{`1.csv:3: last_seq: must be a whole number, is "x"`, "1.csv:4: mentions_seqs: 2 is not among the unread messages"}
	if !errors.Is(err, ErrBadLines) || got.Events != 0 || got.BadLines != 2 || !cmp.Equal(lines, want) {
		t.Errorf("error %v, %+v, bad lines %q", err, got, lines)
	}
	if b := d.Badge(t, "ada"); b.Version != 0 {
		t.Errorf("something was published: %+v", b)
	}
	got, differences, err := run(t, d, func(c *Config) { collect(c); c.SkipBad = true }, good, bad)
	if err != nil || differences != nil || got.Rows != 8 || got.BadLines != 2 || !cmp.Equal(lines, want) {
		t.Errorf("without the bad lines: error %v, %+v, bad lines %q, differences %q", err, got, lines, differences)
	}
	for text, want := range map[string]string{
		"":         "0.csv: there are no rows in it",
		"a,b\n1,2": `0.csv:1: the header names "a"`,
	} {
		if _, _, err := run(t, d, func(c *Config) { c.SkipBad = true }, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error is %v", text, err)
		}
	}
}

// What can be read only once is kept in a temporary file, which is removed.
func TestImportFromAPipe(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	d := projectortest.New(t)
	got, differences, err := run(t, d, func(c *Config) {
		c.Files, c.Stdin = []string{"-"}, strings.NewReader(states)
	})
	if err != nil || differences != nil || got.Rows != 7 {
		t.Errorf("error %v, %+v, differences %q", err, got, differences)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v, %v", left, err)
	}
	path := filepath.Join(t.TempDir(), "states.csv.gz")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	z := gzip.NewWriter(file)
	_, err = z.Write([]byte(states))
	if err := errors.Join(err, z.Close(), file.Close()); err != nil {
		t.Fatal(err)
	}
	if got, _, err = run(t, d, func(c *Config) { c.Files = []string{path} }); err != nil || got.Rows != 7 || got.Events != 0 {
		t.Errorf("compressed: error %v, %+v", err, got)
	}
}
