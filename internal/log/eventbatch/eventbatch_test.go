package eventbatch

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/zstd"
)

// someEvents returns n events as badged encodes them.
func someEvents(n int) []string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`{"specversion":"1.0","id":"%016x","source":"chat/backend","type":"message.delivered","time":"2026-03-01T10:00:%02d.%06dZ","data":{"conversation_id":"room-%d","user_ids":["user-%d"],"seq":%d,"category":"direct","sender_id":"user-%d"}}`,
			rand.Uint64(), i%60, rand.IntN(1e6), rand.IntN(1000), rand.IntN(100000), i, rand.IntN(100000))
	}
	return all
}

func unpacked(t *testing.T, row []byte) []string {
	t.Helper()
	events, err := Unpack(row)
	if err != nil {
		t.Fatal(err)
	}
	texts := make([]string, len(events))
	for i, e := range events {
		texts[i] = string(e)
	}
	return texts
}

func packed(t testing.TB, events []string) []byte {
	t.Helper()
	row, err := Pack(events)
	if err != nil {
		t.Fatal(err)
	}
	return row
}

// What is packed is unpacked, compressed if that makes it smaller.
func TestPack(t *testing.T) {
	for _, n := range []int{2, 3, 10, 1000} {
		events := someEvents(n)
		row := packed(t, events)
		if diff := cmp.Diff(events, unpacked(t, row)); diff != "" {
			t.Errorf("%d events (-want +got):\n%s", n, diff)
		}
		if compressed := bytes.HasPrefix(row, magic); compressed != (n >= 10) {
			t.Errorf("%d events are compressed: %v", n, compressed)
		}
	}
	short := []string{`{}`, `{"a":1}`}
	if row := packed(t, short); string(row) != `[{},{"a":1}]` {
		t.Errorf("a small batch is %q, want plain JSON", row)
	}
}

// streamed compresses a text of unknown length, as command lines and most
// libraries do: the frame declares the window of the encoder.
func streamed(t *testing.T, text []byte, window int) []byte {
	t.Helper()
	var row bytes.Buffer
	e, err := zstd.NewWriter(&row, zstd.WithWindowSize(window))
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range [][]byte{text[:1], text[1:]} {
		if _, err := e.Write(part); err != nil {
			t.Fatal(err)
		}
		if err := e.Flush(); err != nil {
			t.Fatal(err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	return row.Bytes()
}

func TestUnpackOtherForms(t *testing.T) {
	for name, tc := range map[string]struct {
		row  string
		want []string
	}{
		"one event":             {`{"a":[1,2]}`, []string{`{"a":[1,2]}`}},
		"one compressed event":  {string(encoder().EncodeAll([]byte(`{"a":1}`), nil)), []string{`{"a":1}`}},
		"a streamed event":      {string(streamed(t, []byte(`{"a":1}`), 8<<20)), []string{`{"a":1}`}},
		"no JSON":               {`what`, []string{`what`}},
		"nothing":               {``, []string{``}},
		"white space":           {" \n[ {\"a\": 1} ,\t2 ]\r\n", []string{`{"a": 1}`, `2`}},
		"quotes and brackets":   {`["a\"]\\",{"b":"\\\\\"[{"},["]",[]]]`, []string{`"a\"]\\"`, `{"b":"\\\\\"[{"}`, `["]",[]]`}},
		"an element not closed": {`[{"a":nope},{"b":1}]`, []string{`{"a":nope}`, `{"b":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, unpacked(t, []byte(tc.row))); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}

// A row that cannot be taken apart is refused, with little memory.
func TestUnpackRefuses(t *testing.T) {
	good := packed(t, someEvents(100))
	damaged := bytes.Clone(good)
	damaged[len(damaged)/2] ^= 0x55
	someText := []byte(strings.Join(someEvents(10), "\n"))
	zeros := func(n int) []byte { return encoder().EncodeAll(make([]byte, n), nil) }
	for name, tc := range map[string]struct {
		row  []byte
		want string
	}{
		"a damaged row":              {damaged, "the row cannot be decompressed"},
		"a row that ends too early":  {good[:len(good)-10], "the row cannot be decompressed"},
		"a magic number only":        {magic, "the row cannot be decompressed"},
		"a decompression bomb":       {zeros(64 << 20), "more than 1048576 bytes when decompressed"},
		"a streamed bomb":            {streamed(t, make([]byte, 64<<20), 4<<20), "more than 1048576 bytes when decompressed"},
		"a streamed row that ends":   {streamed(t, someText, 4<<20)[:40], "the row cannot be decompressed: unexpected EOF"},
		"a window of 16 MiB":         {streamed(t, someText, 16<<20), "it needs a window of more than 8388608 bytes"},
		"many frames":                {bytes.Repeat(zeros(1<<20), 3), "more than 1048576 bytes when decompressed"},
		"a plain row of 1 MiB":       {[]byte(`["` + strings.Repeat("a", MaxBytes) + `"]`), "the batch has 1048580 bytes"},
		"1,001 events":               {[]byte(`[1` + strings.Repeat(",1", 1000) + `]`), "more than 1000 events"},
		"no events":                  {[]byte(`[ ]`), "the batch has no events"},
		"a missing value":            {[]byte(`[1,,2]`), "a value is missing at byte 3"},
		"a comma at the end":         {[]byte(`[1,]`), "a value is missing at byte 3"},
		"an array without an end":    {[]byte(`[1,{"a":2}`), "it ends too early"},
		"a string without an end":    {[]byte(`[1,"a\"]`), "it ends too early"},
		"another bracket at the end": {[]byte(`[1}`), "it does not end at byte 2"},
		"something behind":           {[]byte(`[1] 2`), "it does not end at byte 2"},
	} {
		t.Run(name, func(t *testing.T) {
			events, err := Unpack(tc.row)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%d events, error %v; want %q", len(events), err, tc.want)
			}
		})
	}
}

func TestIsJSON(t *testing.T) {
	for text, want := range map[string]bool{
		`{"a":1,"a":[2]}`: true, " 1\n": true, `"\u0000"`: true,
		"": false, `{`: false, `1 2`: false, "\"\xff\"": false,
	} {
		if got := IsJSON([]byte(text)); got != want {
			t.Errorf("%q: %v, want %v", text, got, want)
		}
	}
}

// Fits and Pack keep both limits.
func TestFits(t *testing.T) {
	row := make([]string, 0, 3)
	bytes := 0
	for _, size := range []int{MaxBytes / 2, MaxBytes/2 - 3, 1} {
		if fits := Fits(len(row), bytes, size); fits != (len(row) < 2) {
			t.Errorf("event %d fits: %v", len(row), fits)
			continue
		} else if fits {
			row, bytes = append(row, `"`+strings.Repeat("a", size-2)+`"`), bytes+size
		}
	}
	if got := len(unpacked(t, packed(t, row))); got != 2 {
		t.Errorf("a full row has %d events, want 2", got)
	}
	for _, tooLarge := range [][]string{append(row, "1"), slices.Repeat([]string{"1"}, MaxEvents+1)} {
		if _, err := Pack(tooLarge); err == nil || !strings.Contains(err.Error(), "is too large: a row has at most 1000 events and 1048576 bytes") {
			t.Errorf("packing %d events: %v", len(tooLarge), err)
		}
	}
	if Fits(MaxEvents, 10, 1) || !Fits(MaxEvents-1, 10, 1) {
		t.Error("a row has not exactly MaxEvents")
	}
}

// An array is split as a JSON decoder does.
func FuzzUnpack(f *testing.F) {
	for _, row := range []string{`[]`, `[1,"a",{"b":[]}]`, `["\\",null,[["\""]]]`, ` [ {} , {} ] `, "(\xb5/\xfd"} {
		f.Add([]byte(row))
	}
	f.Fuzz(func(t *testing.T, row []byte) {
		events, err := Unpack(row)
		var want []json.RawMessage
		if json.Unmarshal(row, &want) != nil || want == nil || len(want) > MaxEvents {
			return
		}
		if err != nil && len(want) > 0 {
			t.Fatalf("%q: %v", row, err)
		}
		for i := range events {
			if string(events[i]) != string(want[i]) {
				t.Errorf("%q: event %d is %q, want %q", row, i, events[i], want[i])
			}
		}
	})
}

func BenchmarkPack(b *testing.B) {
	for _, n := range []int{2, 3, 10, 62, 1000} {
		events := someEvents(n)
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			size := 0
			for b.Loop() {
				size = len(packed(b, events))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
			b.ReportMetric(float64(size)/float64(n), "bytes/event")
		})
	}
}

func BenchmarkUnpack(b *testing.B) {
	for _, n := range []int{2, 62, 1000} {
		row := packed(b, someEvents(n))
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				if _, err := Unpack(row); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*n), "ns/event")
		})
	}
}
