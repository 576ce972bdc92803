package events_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/badged/badged/events"
)

// messageTo is a message to n users, as chat backends send it.
func messageTo(n int) events.Event {
	e := events.Event{
		ID: "0193a1c2-7d5e-7c3b-9a41-5e0f5b7b9ad1", Source: "https://chat.example", Type: events.MessageDelivered,
		Time: time.Date(2026, 1, 31, 23, 59, 59, 123456789, time.UTC),
		Data: events.Data{ConversationID: "conversation-123456", Seq: 1234567, SenderID: "user-000000"},
	}
	for i := range n {
		e.Data.UserIDs = append(e.Data.UserIDs, fmt.Sprintf("user-%06d", i+1))
	}
	return e
}

func eachGroupSize(b *testing.B, bench func(b *testing.B, e events.Event, encoded []byte)) {
	for _, n := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprintf("users=%d", n), func(b *testing.B) {
			e := messageTo(n)
			encoded, err := e.MarshalJSON()
			if err != nil {
				b.Fatal(err)
			}
			b.SetBytes(int64(len(encoded)))
			b.ReportAllocs()
			bench(b, e, encoded)
		})
	}
}

func BenchmarkDecode(b *testing.B) {
	eachGroupSize(b, func(b *testing.B, _ events.Event, encoded []byte) {
		for b.Loop() {
			if _, err := events.Decode(encoded); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkEncode(b *testing.B) {
	eachGroupSize(b, func(b *testing.B, e events.Event, _ []byte) {
		for b.Loop() {
			if _, err := e.MarshalJSON(); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkAppend appends messages to one user each, several per transaction,
// from one client.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("events=%d", n), func(b *testing.B) {
			log, _ := newLog(b)
			evs := make([]events.Event, n)
			for i := range evs {
				evs[i] = messageTo(1)
				evs[i].Data.UserIDs[0] = fmt.Sprintf("user-%d", i)
			}
			for b.Loop() {
				mustAppend(b, log, evs...)
			}
			b.ReportMetric(float64(b.N)*float64(n)/b.Elapsed().Seconds(), "events/s")
		})
	}
}
