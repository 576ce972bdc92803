package traffic

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/badged/badged/events"
)

const (
	delivered = `{"specversion":"1.0","id":"1","source":"s","type":"message.delivered","data":{"conversation_id":"c","user_ids":["u","v"],"seq":1,"mentioned_user_ids":["v"]}}`
	marked    = `{"specversion":"1.0","id":"2","source":"s","type":"conversation.marked_unread","data":{"conversation_id":"c","user_ids":["u"]}}`
)

func TestReader(t *testing.T) {
	for _, tt := range []struct{ name, content, want string }{
		{"no end of line at the end", "a b 1\nc d 2", "a:b: 1 from a to b\nc:d: 1 from c to d\n"},
		{"CRLF", "a b 1\r\nc d 2\r\n", "a:b: 1 from a to b\nc:d: 1 from c to d\n"},
		{"tabs and more than one space", "\ta  b\t1 \n", "a:b: 1 from a to b\n"},
		{"blank lines and comments", "# from: x\n\n  # to y\na b 1\n \n#\nc d 2\n", "a:b: 1 from a to b\nc:d: 1 from c to d\n"},
		{"byte order mark", "\ufeffa b 1\n", "a:b: 1 from a to b\n"},
		{"events", "\n" + delivered + "\r\n\n" + marked, "c: 1 from  to u,v\nconversation.marked_unread\n"},
		{"a line beyond the buffer", "a b 1" + strings.Repeat(" ", 1<<17) + "\nc d 2\n", "a:b: 1 from a to b\nc:d: 1 from c to d\n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tell(readAll(t, tt.content))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReaderRefuses(t *testing.T) {
	id129 := strings.Repeat("x", events.MaxIDBytes+1)
	for _, tt := range []struct{ name, content, want string }{
		{"empty file", "", "read traffic: there is no traffic in it"},
		{"only comments", "# a\n\n", "read traffic: there is no traffic in it"},
		{"two fields", "a b 1\na b\n", "traffic:2: want SRC DST UNIXTS, found 2 fields"},
		{"four fields", "a b 1 2", "traffic:1: want SRC DST UNIXTS, found 4 fields"},
		{"no time", "a b noon", `traffic:1: UNIXTS must be whole seconds since 1970, is "noon"`},
		{"a fraction", "a b 1.5", `traffic:1: UNIXTS must be whole seconds since 1970, is "1.5"`},
		{"milliseconds", "a b 1098777142000", "traffic:1: UNIXTS must be seconds since 1970, from 0 to 253402300799, is 1098777142000"},
		{"before 1970", "a b -1", "traffic:1: UNIXTS must be seconds since 1970, from 0 to 253402300799, is -1"},
		{"a long id", "a b 1\r\n# c\r\n" + id129 + " b 1", "traffic:3: SRC must have at most 128 bytes, has 129"},
		{"bad UTF-8", "a \xff 1", "traffic:1: DST must be valid UTF-8"},
		{"a control character", "a\x00 b 1", "traffic:1: SRC must not hold control characters"},
		{"events among messages", "a b 1\n" + `{"specversion": "1.0", "id": "1"}`, "traffic:2: want SRC DST UNIXTS, found 4 fields"},
		{"broken JSON", delivered + "\n{", "traffic:2: invalid event: is not valid JSON: it ends too early at byte 1"},
		{"a bad event", `{"specversion":"1.0","id":"1","source":"s","type":"user.read_all","data":{}}`, "traffic:1: invalid event: data.user_ids: is required"},
		{"an archive", `{"position":"1/2","appended_at":"2026-01-31T00:00:00Z","uuid":"0195b3a0-0000-7000-8000-000000000001","event":` + delivered + "}", "traffic:1: " + errArchived.Error()},
		{"a line too long", "a b " + strings.Repeat("1", maxLineBytes), "traffic:1: is longer than 8 MiB"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := readEvents(strings.NewReader(tt.content))
			if err == nil || err.Error() != tt.want {
				t.Errorf("error is %v\nwant %s", err, tt.want)
			}
		})
	}
}

func TestReaderErrorIsFinalAndTyped(t *testing.T) {
	r := NewReader("traffic", strings.NewReader("a b 1\nnonsense\nc d 2\n"))
	if _, err := r.Next(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		_, err := r.Next()
		var bad *LineError
		if !errors.As(err, &bad) || bad.Line != 2 || bad.File != "traffic" {
			t.Fatalf("error is %v", err)
		}
	}
}

func TestReaderReportsReadErrors(t *testing.T) {
	broken := errors.New("broken")
	_, err := readEvents(io.MultiReader(strings.NewReader("a b 1\nc d"), iotest.ErrReader(broken)))
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "traffic:2: ") {
		t.Errorf("error is %v", err)
	}
}

func TestReaderTimesAndLines(t *testing.T) {
	r := NewReader("traffic", strings.NewReader("\na b 1082040961\n#\nb a 2\n"))
	var lines []int
	for {
		record, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if record.Line == 2 && !record.Event.Time.Equal(time.Date(2004, time.April, 15, 14, 56, 1, 0, time.UTC)) {
			t.Errorf("time is %s", record.Event.Time)
		}
		lines = append(lines, record.Line)
	}
	if diff := cmp.Diff([]int{2, 4, 4}, lines); diff != "" {
		t.Error(diff)
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "a b 1", "1 2 1082040961\n2 1 1082040999\r\n", "# x\na a 0\n", "\ufeffa:b c 7", "a b -1", "a b c d",
		delivered, delivered + "\n" + marked + "\n", "{", "\xff\xfe", "a\u00a0b 1\u20282",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, content []byte) {
		evs, err := readEvents(bytes.NewReader(content))
		for _, e := range evs {
			if err := e.Validate(); err != nil {
				t.Errorf("an invalid event: %v", err)
			}
		}
		if err == nil && len(evs) == 0 {
			t.Error("neither events nor an error")
		}
		if trimmed := bytes.TrimSpace(bytes.TrimPrefix(content, []byte(byteOrderMark))); !bytes.HasPrefix(trimmed, []byte("{")) {
			ids := map[string]bool{}
			for _, e := range evs {
				if ids[e.ID] {
					t.Errorf("two events have the id %s", e.ID)
				}
				ids[e.ID] = true
			}
		}
		again, _ := readEvents(iotest.OneByteReader(bytes.NewReader(content)))
		if diff := cmp.Diff(evs, again); diff != "" {
			t.Errorf("the same bytes in small pieces give other events:\n%s", diff)
		}
		if !bytes.ContainsRune(content, '\r') {
			crlf, _ := readEvents(bytes.NewReader(bytes.ReplaceAll(content, []byte("\n"), []byte("\r\n"))))
			if diff := cmp.Diff(evs, crlf); diff != "" {
				t.Errorf("CRLF gives other events:\n%s", diff)
			}
		}
	})
}
