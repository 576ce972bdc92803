package deadletters_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/devtest/projectortest"
	"github.com/badged/badged/internal/devtest/replaytest"
	"github.com/badged/badged/internal/operations/deadletters"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

func TestListDeadLettersByPages(t *testing.T) {
	d := projectortest.New(t)
	for _, payload := range []string{`1`, `2`, `3`} {
		d.InsertPayload(t, payload)
	}
	d.Fold(t)
	letters := deadletters.New(d.Pool, d.Log)
	var got []string
	for after := int64(0); ; {
		page, err := letters.List(t.Context(), after, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, l := range page {
			got = append(got, string(l.Payload))
			after = l.ID
		}
	}
	if diff := cmp.Diff([]string{"1", "2", "3"}, got); diff != "" {
		t.Errorf("dead letters (-want +got):\n%s", diff)
	}
}

// theDeadLetter returns the only dead letter.
func theDeadLetter(t *testing.T, letters *deadletters.Letters) deadletters.Letter {
	t.Helper()
	all, err := letters.List(t.Context(), 0, 10)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d dead letters, error %v", len(all), err)
	}
	return all[0]
}

// A dead letter that can be decoded by now is folded when it is retried, in
// the partitions of its users, and removed.
func TestRetryADeadLetter(t *testing.T) {
	d := projectortest.New(t)
	ann, bob := foldtest.User(0, 0), foldtest.User(1, 0)
	strayed, err := foldtest.Deliver("c", 1, ann, bob).MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	d.InsertPayload(t, string(strayed)) // bob is in another partition
	d.Fold(t)
	letters := deadletters.New(d.Pool, d.Log)
	l := theDeadLetter(t, letters)
	receipt, err := letters.Retry(t.Context(), l.ID)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]int{0, 1}, receipt.Partitions); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	d.Fold(t)
	for _, user := range []string{ann, bob} {
		if b := d.Badge(t, user); b.Total != 1 {
			t.Errorf("the total of %s is %d, want 1", user, b.Total)
		}
	}
	if all, err := letters.List(t.Context(), 0, 10); len(all) > 0 || err != nil {
		t.Errorf("dead letters %v, error %v", all, err)
	}
	if _, err := letters.Retry(t.Context(), l.ID); !errors.Is(err, deadletters.ErrNotFound) {
		t.Errorf("retried again: %v", err)
	}
}

// A row that an earlier release could not take apart is retried as a whole: this one
// can, or it says what is wrong.
func TestRetryAWholeRow(t *testing.T) {
	ann := foldtest.User(0, 0)
	encode := func(seq int64) string {
		b, err := foldtest.Deliver("c", seq, ann).MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	row := foldtest.Row(encode(1), encode(2))
	large := foldtest.Row(strings.Repeat(encode(1), 20))
	for _, tc := range []struct {
		name    string
		payload []byte
		want    string // an error
	}{
		{"that can be read now", row, ""},
		{"that can be decompressed now", foldtest.Row(slices.Repeat([]string{encode(1), encode(2)}, 10)...), ""},
		{"with an event that is invalid", foldtest.Row(encode(1), `{}`), "event 1 of its row: invalid event: specversion: is required"},
		{"that ends too early", row[:len(row)-1], "the row of the log still cannot be decoded: the batch is not valid JSON: it ends too early; publish its events again"},
		{"that is damaged", large[:len(large)-4], "the row of the log still cannot be decoded: the row cannot be decompressed: "},
		{"that was too large to keep", nil, "its payload was not stored"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := projectortest.New(t)
			d.InsertPayload(t, `[`)
			d.Fold(t)
			d.Exec(t, `UPDATE badged.dead_letters SET payload = $1`, tc.payload)
			letters := deadletters.New(d.Pool, d.Log)
			_, err := letters.Retry(t.Context(), theDeadLetter(t, letters).ID)
			if tc.want != "" {
				if err == nil || !strings.Contains(err.Error(), tc.want) {
					t.Errorf("error %v, want %s", err, tc.want)
				}
				theDeadLetter(t, letters) // it stays
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			d.Fold(t)
			if b := d.Badge(t, ann); b.Total != 2 {
				t.Errorf("the total is %d, want 2", b.Total)
			}
			if all, err := letters.List(t.Context(), 0, 10); len(all) > 0 || err != nil {
				t.Errorf("dead letters %v, error %v", all, err)
			}
		})
	}
}

// An earlier release put an event aside that this one can decode. Replays leave it
// out at its place, also after it was discarded or retried.
func TestReplaysAfterDeadLettersAreSettled(t *testing.T) {
	for name, settle := range map[string]func(*deadletters.Letters, int64) error{
		"discarded": func(l *deadletters.Letters, id int64) error { _, err := l.Discard(t.Context(), id); return err },
		"retried":   func(l *deadletters.Letters, id int64) error { _, err := l.Retry(t.Context(), id); return err },
	} {
		t.Run(name, func(t *testing.T) {
			d := projectortest.New(t)
			ann := foldtest.User(0, 0)
			event, err := foldtest.Deliver("a", 1, ann).MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			d.InsertPayload(t, `{}`)
			d.Append(t, foldtest.Deliver("b", 1, ann))
			d.Fold(t)
			for _, table := range []string{"events_p00", "dead_letters"} {
				d.Exec(t, `UPDATE badged.`+table+` SET payload = $1 WHERE payload = '{}'`, event)
			}
			replaytest.Verify(t, d.Pool, d.Log, ann)
			letters := deadletters.New(d.Pool, d.Log)
			if err := settle(letters, theDeadLetter(t, letters).ID); err != nil {
				t.Fatal(err)
			}
			d.Fold(t)
			replaytest.Verify(t, d.Pool, d.Log, ann)
		})
	}
}

// A retried dead letter that still cannot be decoded stays.
func TestRetryADeadLetterInVain(t *testing.T) {
	d := projectortest.New(t)
	d.InsertPayload(t, `{}`)
	d.Fold(t)
	letters := deadletters.New(d.Pool, d.Log)
	l := theDeadLetter(t, letters)
	var invalid *events.InvalidError
	if _, err := letters.Retry(t.Context(), l.ID); !errors.As(err, &invalid) {
		t.Errorf("error %v", err)
	}
	if diff := cmp.Diff(l, theDeadLetter(t, letters)); diff != "" {
		t.Errorf("dead letter (-before +after):\n%s", diff)
	}
}

func TestDiscardADeadLetter(t *testing.T) {
	d := projectortest.New(t)
	d.InsertPayload(t, `{}`)
	d.Fold(t)
	letters := deadletters.New(d.Pool, d.Log)
	l := theDeadLetter(t, letters)
	discarded, err := letters.Discard(t.Context(), l.ID)
	if diff := cmp.Diff(l, discarded); diff != "" || err != nil {
		t.Errorf("error %v, discarded (-listed +returned):\n%s", err, diff)
	}
	if all, err := letters.List(t.Context(), 0, 10); len(all) > 0 || err != nil {
		t.Errorf("dead letters %v, error %v", all, err)
	}
	if _, err := letters.Discard(t.Context(), l.ID); !errors.Is(err, deadletters.ErrNotFound) {
		t.Errorf("discarded again: %v", err)
	}
}

// The target of a move has copies of dead letters before it has the partition: they are not
// its own.
func TestDeadLettersOfAPartitionThatIsNotHeld(t *testing.T) {
	d := projectortest.New(t)
	d.InsertPayload(t, `{}`)
	d.Fold(t)
	d.StopFolding()
	letters := deadletters.New(d.Pool, d.Log)
	l := theDeadLetter(t, letters)
	d.Exec(t, `DELETE FROM badged.partitions WHERE partition_id = $1`, l.Partition)
	if all, err := letters.List(t.Context(), 0, 10); len(all) > 0 || err != nil {
		t.Errorf("dead letters %v, error %v", all, err)
	}
	if _, err := letters.Find(t.Context(), l.ID); !errors.Is(err, deadletters.ErrNotFound) {
		t.Errorf("it is found: %v", err)
	}
	if _, err := letters.Discard(t.Context(), l.ID); !errors.Is(err, deadletters.ErrNotFound) {
		t.Errorf("it is discarded: %v", err)
	}
}

// Pages are bounded in bytes, however large the dead letters are.
func TestPagesOfLargeDeadLetters(t *testing.T) {
	d := projectortest.New(t)
	for i, size := range []int{3, 3, 5, 0} {
		d.Exec(t, `INSERT INTO badged.dead_letters (partition_id, transaction_id, "offset", uuid, payload, reason)
VALUES (0, '1', $1, gen_random_uuid(), CASE WHEN $2 > 0 THEN convert_to(repeat('x', $2 << 20), 'UTF8') END, 'odd')`, i, size)
	}
	letters, after := deadletters.New(d.Pool, d.Log), int64(0)
	for _, want := range []int{2, 1, 1, 0} {
		page, err := letters.List(t.Context(), after, 100)
		if err != nil || len(page) != want {
			t.Errorf("after %d there are %d, %v, want %d", after, len(page), err, want)
		}
		for _, l := range page {
			after = l.ID
		}
	}
}
