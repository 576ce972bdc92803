package pgwire_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"go.uber.org/goleak"

	"github.com/badged/badged/internal/devtest/pgtest"
	"github.com/badged/badged/internal/pgwire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(pgtest.Main(m)) }

// The encoding equals that of pgx to the byte, wherever it begins in a buffer.
func TestArraysMatchPgx(t *testing.T) {
	usual, ours := pgtype.NewMap(), pgtype.NewMap()
	pgwire.RegisterArrays(ours)
	texts := []string{"", "a", `{"quoted": "}"}`, "Zoë", strings.Repeat("long ", 1000)}
	documents := []string{`{}`, `{"chat":5}`, `null`}
	for _, tc := range []struct {
		oid    uint32
		values []any
	}{
		{pgtype.TextArrayOID, []any{[]string(nil), []string{}, texts, []*string{&texts[1], nil}, "{a,b}"}},
		{pgtype.JSONArrayOID, []any{[]string(nil), []string{}, documents}},
		{pgtype.JSONBArrayOID, []any{[]string(nil), []string{}, documents}},
		{pgtype.Int8ArrayOID, []any{[]int64(nil), []int64{}, []int64{0, -1, 1 << 40}, []int{7}}},
		{pgtype.UUIDArrayOID, []any{[][16]byte(nil), [][16]byte{}, [][16]byte{{1}, {15: 0xff}}}},
		{pgtype.BoolArrayOID, []any{[]bool{true, false}}},
	} {
		for _, format := range []int16{pgtype.BinaryFormatCode, pgtype.TextFormatCode} {
			for _, value := range tc.values {
				want, wantErr := usual.Encode(tc.oid, format, value, []byte("before"))
				got, err := ours.Encode(tc.oid, format, value, []byte("before"))
				if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
					t.Errorf("type %d, format %d, %T %v is\n%q, %v, want\n%q, %v", tc.oid, format, value, value, got, err, want, wantErr)
				}
			}
		}
	}
}

// A leading array encodes like any other, with too little room and without
// RegisterArrays too.
func TestLeadingIsAnArray(t *testing.T) {
	usual, ours := pgtype.NewMap(), pgtype.NewMap()
	pgwire.RegisterArrays(ours)
	for _, texts := range [][]string{{}, {"", "a", `{"quoted": "\\"}`, "Zoë"}} {
		for _, bytes := range []int{0, 1 << 10} {
			want, err := ours.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, texts, []byte("before"))
			if err != nil {
				t.Fatal(err)
			}
			leading := pgwire.Leading{Array: texts, Bytes: bytes}
			got, err := ours.Encode(pgtype.TextArrayOID, pgtype.BinaryFormatCode, leading, []byte("before"))
			if !cmp.Equal(got, want) || err != nil || cap(got) < bytes {
				t.Errorf("%q with room for %d is %q, with room for %d, %v; want %q", texts, bytes, got, cap(got), err, want)
			}
			for _, oid := range []uint32{0, pgtype.TextArrayOID} { // not known, and known
				literal, err := usual.Encode(oid, pgtype.TextFormatCode, leading, nil)
				var again []string
				if err == nil {
					err = usual.Scan(pgtype.TextArrayOID, pgtype.TextFormatCode, literal, &again)
				}
				if err != nil || !cmp.Equal(again, texts) {
					t.Errorf("%q comes back from %q as %q, %v", texts, literal, again, err)
				}
			}
		}
	}

	keys := [][16]byte{{1}, {2}}
	want, err := ours.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, keys, nil)
	got, err2 := ours.Encode(pgtype.UUIDArrayOID, pgtype.BinaryFormatCode, pgwire.Leading{Array: keys, Bytes: 1 << 10}, nil)
	if !cmp.Equal(got, want) || cap(got) < 1<<10 || err != nil || err2 != nil {
		t.Errorf("keys are %q with room for %d, %v; want %q, %v", got, cap(got), err2, want, err)
	}
	if _, err := (pgwire.Leading{Array: []int64{1}}).Value(); err == nil {
		t.Error("an array of numbers was accepted as a leading one")
	}
}

// Reserve sends nothing and does not change what is sent next.
func TestReserve(t *testing.T) {
	conn, err := pgx.Connect(t.Context(), pgtest.NewDB(t, pgtest.Template{}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	for range 2 {
		pgwire.Reserve(conn, 1<<20)
		var n int
		if err := conn.QueryRow(t.Context(), `SELECT $1::int + 1`, 1).Scan(&n); err != nil || n != 2 {
			t.Fatalf("1 + 1 = %d, %v", n, err)
		}
	}
	usual := testing.AllocsPerRun(1, func() { send(t, conn, 0) })
	if reserved := testing.AllocsPerRun(1, func() { send(t, conn, 11<<20) }); reserved >= usual {
		t.Errorf("sending takes %v allocations with room for it, %v without", reserved, usual)
	}
}

// send sends a thousand texts of 10 KiB, with room for reserve bytes.
func send(t *testing.T, conn *pgx.Conn, reserve int) {
	t.Helper()
	text := strings.Repeat("x", 10<<10)
	var batch pgx.Batch
	for range 1000 {
		batch.Queue(`SELECT length($1::text)`, text)
	}
	if reserve > 0 {
		pgwire.Reserve(conn, reserve)
	}
	if err := conn.SendBatch(t.Context(), &batch).Close(); err != nil {
		t.Fatal(err)
	}
}
