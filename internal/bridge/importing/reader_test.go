package importing

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/snippets"
)

const header = "user_id,conversation_id,last_seq,read_seq,level,unread_seqs,category,mentions_seqs,marked_unread\n"

// read returns the rows of a file, and its bad lines.
func read(t *testing.T, text string) (rows []Row, bad []string) {
	t.Helper()
	r := NewReader(strings.NewReader(text), States, nil)
	for {
		row, err := r.Next()
		var field *FieldError
		switch {
		case errors.Is(err, io.EOF):
			return rows, bad
		case errors.As(err, &field):
			bad = append(bad, fmt.Sprintf("%d: %s", r.Line(), field))
		case err != nil:
			t.Fatal(err)
		default:
			rows = append(rows, row)
		}
	}
}

func TestReaderOfEitherFormat(t *testing.T) {
	want := []Row{
		{UserID: "ada", ConversationID: "tea, hot", LastSeq: 12, ReadSeq: 7, Level: events.LevelMentions, Category: "likes", Unread: []int64{8, 10, 11, 12}, Mentions: []int64{8, 11}, MarkedUnread: true},
		{UserID: `b"b`, ConversationID: "c", LastSeq: 3, ReadSeq: 3, Level: events.LevelDefault, Category: "chat"},
	}
	for name, text := range map[string]string{
		"CSV":    "\ufeff" + header + "\r\nada,\"tea, hot\",12,7,mentions,8 10-12,likes,11 8,t\r\n" + `"b""b",c,3,3,,,,,`,
		"NDJSON": `{"user_id":"ada","conversation_id":"tea, hot","last_seq":12,"read_seq":7,"level":"mentions","unread_seqs":[12,10,11,8,8],"category":"likes","mentions_seqs":[8,11],"marked_unread":true}` + "\n\n" + `{"user_id":"b\"b","conversation_id":"c","last_seq":3,"read_seq":3,"unread_seqs":null,"level":null}`,
	} {
		got, bad := read(t, text)
		for i := range got {
			got[i].Line = 0
			if len(got[i].Unread) == 0 {
				got[i].Unread, got[i].Mentions = nil, nil
			}
		}
		if diff := cmp.Diff(want, got); diff != "" || bad != nil {
			t.Errorf("%s: bad lines %q, rows (-want +got):\n%s", name, bad, diff)
		}
	}
}

// Without a list of unread messages, all after the read position are unread.
func TestReaderAssumesWhatIsUnread(t *testing.T) {
	for _, text := range []string{
		"user_id,conversation_id,last_seq,read_seq\nada,c,9,6\nada,d,5,5\nada,e,2,7\n",
		`{"user_id":"ada","conversation_id":"c","last_seq":9,"read_seq":6}
{"user_id":"ada","conversation_id":"d","last_seq":5,"read_seq":5}
{"user_id":"ada","conversation_id":"e","last_seq":2,"read_seq":7}`,
	} {
		rows, bad := read(t, text)
		if bad != nil || !cmp.Equal(rows[0].Unread, []int64{7, 8, 9}) || len(rows[1].Unread)+len(rows[2].Unread) > 0 {
			t.Errorf("%+v, bad lines %q", rows, bad)
		}
	}
}

// Systems that have only counters give these: the last messages are unread.
func TestReaderCounts(t *testing.T) {
	for _, text := range []string{
		"user_id,conversation_id,last_seq,read_seq,unread_count,mentions_count\nada,c,9,,3,1\nada,d,9,2,2,\nada,e,9,,0,\nada,f,9,7,,\n",
		`{"user_id":"ada","conversation_id":"c","last_seq":9,"read_seq":null,"unread_count":3,"mentions_count":1}
{"user_id":"ada","conversation_id":"d","last_seq":9,"read_seq":2,"unread_count":2}
{"user_id":"ada","conversation_id":"e","last_seq":9,"read_seq":null,"unread_count":0,"unread_seqs":[]}
{"user_id":"ada","conversation_id":"f","last_seq":9,"read_seq":7,"unread_count":null}`,
	} {
		rows, bad := read(t, text)
		var got []string
		for _, r := range rows {
			got = append(got, fmt.Sprint(r.ReadSeq, r.LastSeq, r.Unread, len(r.Mentions)))
		}
		if diff := cmp.Diff([]string{"6 9 [7 8 9] 1", "2 9 [8 9] 0", "9 9 [] 0", "7 9 [8 9] 0"}, got); diff != "" || bad != nil {
			t.Errorf("bad lines %q, rows (-want +got):\n%s", bad, diff)
		}
	}
	for line, want := range map[string]string{
		"ada,c,9,,3,4,":   "mentions_count: must be from 0 to unread_count 3, is 4",
		"ada,c,9,,-1,,":   "unread_count: must be from 0 to 10000, is -1",
		"ada,c,9,,many,,": `unread_count: must be a whole number, is "many"`,
		"ada,c,2,,3,,":    "last_seq: must be unread_count 3 or more, is 2: give the seq of the last message",
		"ada,c,9,7,3,,":   "unread_count: is 3, but there are 2 seqs from read_seq 7 to last_seq 9",
		"ada,c,9,7,2,,8":  "unread_count: is given beside unread_seqs",
		"ada,c,9,7,,1,8":  "mentions_count: is given without unread_count",
	} {
		_, bad := read(t, "user_id,conversation_id,last_seq,read_seq,unread_count,mentions_count,unread_seqs\n"+line+"\n")
		if len(bad) != 1 || !strings.HasPrefix(bad[0], "2: "+want) {
			t.Errorf("%s: bad lines %q, want %s", line, bad, want)
		}
	}
}

// An empty list may mean that nothing is unread, or that it is not known what.
func TestReaderAsksWhatIsEmpty(t *testing.T) {
	for _, text := range []string{
		"user_id,conversation_id,last_seq,read_seq,unread_seqs\nada,c,9,6,\nada,d,9,9,\n",
		`{"user_id":"ada","conversation_id":"c","last_seq":9,"read_seq":6,"unread_seqs":[]}
{"user_id":"ada","conversation_id":"d","last_seq":9,"read_seq":9,"unread_seqs":null}`,
	} {
		rows, bad := read(t, text)
		if len(rows) != 1 || len(bad) != 1 || !strings.Contains(bad[0], ": unread_seqs: is empty, but read_seq 6 is below last_seq 9: list what is unread, give unread_count, or say with --empty-unread ") {
			t.Errorf("asked: rows %+v, bad lines %q", rows, bad)
		}
		for empty, want := range map[EmptyUnread][]int64{EmptyIsNone: nil, EmptyIsAll: {7, 8, 9}} {
			r := NewReader(strings.NewReader(text), States, nil)
			r.Empty = empty
			row, err := r.Next()
			if err != nil || len(row.Unread) != len(want) || len(want) > 0 && !cmp.Equal(row.Unread, want) {
				t.Errorf("%s: %+v, error %v", empty, row, err)
			}
		}
	}
}

func TestReaderNamesLineAndField(t *testing.T) {
	for line, want := range map[string]string{
		",c,1,0,,,,,":           "user_id: must not be empty",
		"a\tb,c,1,0,,,,,":       "user_id: must not hold control characters",
		"ada,,1,0,,,,,":         "conversation_id: must not be empty",
		"ada,c,,0,,,,,":         "last_seq: is required",
		"ada,c,x,0,,,,,":        `last_seq: must be a whole number, is "x"`,
		"ada,c,-1,0,,,,,":       "last_seq: must be 0 or more, is -1",
		"ada,c,1,-2,,,,,":       "read_seq: must be 0 or more, is -2",
		"ada,c,1,1.5,,,,,":      `read_seq: must be a whole number, is "1.5"`,
		"ada,c,1,0,loud,,,,":    `level: must be all, mentions or none, is "loud"`,
		"ada,c,9,5,,5 6,,,":     "unread_seqs: 5 is not above read_seq 5",
		"ada,c,9,5,,6 10,,,":    "unread_seqs: 10 is above last_seq 9",
		"ada,c,9,5,,7-6,,,":     `unread_seqs: the range "7-6" ends before it begins`,
		"ada,c,9,5,,1-99999,,,": "unread_seqs: more than 10000 messages",
		"ada,c,9,5,,6-,,,":      "unread_seqs: is required",
		"ada,c,9,5,,6,,7,":      "mentions_seqs: 7 is not among the unread messages",
		"ada,c,9,5,,6,,,yes":    `marked_unread: must be true or false, is "yes"`,
		"ada,c,9,5":             "line: has 4 values, but the header has 9",
		`ada,"c,9,5,,,,,`:       "line: a double quote is not closed",
		`ada,"c"d,9,5,,,,,`:     "line: want a comma after a value in double quotes",
		`ada,c"d",9,5,,,,,`:     "line: a double quote within a value",
		"ada,c,9,5,,6," + strings.Repeat("x", 65) + ",,": "category: must have parts of at most 64 characters, has one of 65",
	} {
		_, bad := read(t, header+"ann,c,2,1,,2,,,\n"+line+"\n")
		if len(bad) != 1 || !strings.HasPrefix(bad[0], "3: "+want) {
			t.Errorf("%s: bad lines %q, want %s", line, bad, want)
		}
	}
	for line, want := range map[string]string{
		`{"conversation_id":"c","last_seq":1,"read_seq":0}`:                                    "user_id: is required",
		`{"user_id":"a","conversation_id":"c","last_seq":1}`:                                   "read_seq: is required",
		`{"user_id":"a","conversation_id":"c","last_seq":"1","read_seq":0}`:                    `last_seq: must be a whole number, is "1"`,
		`{"user_id":5,"conversation_id":"c","last_seq":1,"read_seq":0}`:                        "user_id: must be a string, is 5",
		`{"user_id":"a","conversation_id":"c","last_seq":1,"read_seq":0,"unread_seqs":"1"}`:    `unread_seqs: must be an array of whole numbers, is "1"`,
		`{"user_id":"a","conversation_id":"c","last_seq":1,"read_seq":0,"marked_unread":"no"}`: `marked_unread: must be true or false, is "no"`,
		`{"user_id":"a","conversation_id":"c","last_seq":1,"read_seq":0,"unread":1}`:           "unread: is not a field; the fields are user_id, ",
		`{"user_id":"a","conversation_id":"c","last_seq":10001,"read_seq":0}`:                  "last_seq: 10001 messages after read_seq 0 would be unread, at most 10000 may be",
		`{"user_id":"a","conversation_id":"c","last_seq":null,"read_seq":0}`:                   "last_seq: is required",
		`{"user_id":"a","user_id":"b","conversation_id":"c","last_seq":1,"read_seq":0}`:        "user_id: duplicate object member name",
		"{\"user_id\":\"a\xff\",\"conversation_id\":\"c\",\"last_seq\":1,\"read_seq\":0}":      "user_id: invalid UTF-8",
		`{"user_id":`:              "line: is not a JSON object",
		`{"user_id":"a"}{"b":"c"}`: "line: ",
	} {
		_, bad := read(t, `{"user_id":"ann","conversation_id":"c","last_seq":10000,"read_seq":0}`+"\n"+line+"\n")
		if len(bad) != 1 || !strings.HasPrefix(bad[0], "2: "+want) {
			t.Errorf("%s: bad lines %q, want %s", line, bad, want)
		}
	}
}

func TestReaderRefusesBadHeaders(t *testing.T) {
	for text, want := range map[string]string{
		"user_id,conversation_id,last_seq\n":                  "the header does not name read_seq",
		"user_id,user_id,conversation_id,last_seq,read_seq\n": "the header names user_id twice",
		"user_id,conversation_id,last_seq,read_seq,unread\n":  `the header names "unread", which is not a field; the fields are user_id, `,
		"ada;tea;1;0\n": `the header names "ada;tea;1;0", which is not a field`,
		"user_id,conversation_id,last_seq,read_seq,\"open_ended\n": "line: a double quote is not closed",
	} {
		if _, err := NewReader(strings.NewReader(text), States, nil).Next(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error is %v", text, err)
		} else if field := new(FieldError); errors.As(err, &field) {
			t.Errorf("%s: lines that follow cannot be read, but the error is of a line", text)
		}
	}
}

func TestSketch(t *testing.T) {
	s := newSketch()
	for i := range MaxExact {
		s.add(fmt.Sprint(i))
		s.add(fmt.Sprint(i))
	}
	if n := s.count(); n != MaxExact {
		t.Errorf("it counts %d of %d", n, MaxExact)
	}
	const many = 10 * MaxExact
	for i := range many {
		s.add(fmt.Sprint(i))
	}
	if n := s.count(); n < many*97/100 || n > many*103/100 || len(s.kept) != MaxExact {
		t.Errorf("it estimates %d of %d, with %d hashes", n, many, len(s.kept))
	}
}

// The files that the pages show are read without a mistake.
func TestFilesOfThePages(t *testing.T) {
	blocks := append(snippets.Blocks(t, "csv"), snippets.With(t, "docs/importing.md", `"unread_seqs"`, "json"))
	for _, block := range blocks {
		if rows, bad := read(t, block.Text); len(rows) == 0 || bad != nil {
			t.Errorf("%s has %d rows; mistakes: %q", block, len(rows), bad)
		}
	}
	block := snippets.With(t, "docs/importing.md", `"file_value"`, "json")
	decoder := json.NewDecoder(strings.NewReader(block.Text))
	decoder.DisallowUnknownFields()
	var shown Difference
	if err := decoder.Decode(&shown); err != nil || shown.File == "" || shown.Line == 0 || shown.Field == "" || shown.Want == "" || shown.Have == "" {
		t.Errorf("%s is %+v, %v", block, shown, err)
	}
}
