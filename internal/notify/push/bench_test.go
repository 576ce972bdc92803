package push

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/badged/badged/internal/notify/outbound"
	"github.com/badged/badged/pubsub"
)

// endless is a Queue that has that many pushes.
type endless struct {
	due outbound.DevicePush
	// held are those that wait because the vendor is slow.
	left, told, held atomic.Int64
	total            int64
	done             chan struct{}
	failed           func(reason string)
}

func (e *endless) NextDevices(ctx context.Context, _, _ string, limit int) ([]outbound.DevicePush, error) {
	n := min(int64(limit), e.left.Load())
	if n <= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	e.left.Add(-n)
	all := make([]outbound.DevicePush, n)
	for i := range all {
		all[i] = e.due
		all[i].DueAt = time.Now()
	}
	return all, nil
}

func (e *endless) DeviceTold(outbound.DevicePush, time.Duration) {
	if e.told.Add(1) == e.total {
		close(e.done)
	}
}

func (e *endless) DeviceRetry(d outbound.DevicePush, _ int, _ time.Duration, reason string) {
	e.failed(reason)
	e.DeviceTold(d, 0)
}

func (e *endless) DeviceHold(d outbound.DevicePush, _ time.Duration) {
	e.held.Add(1)
	e.DeviceTold(d, 0)
}

func (e *endless) DeviceGone(d outbound.DevicePush) {
	e.failed("gone")
	e.DeviceTold(d, 0)
}

// processorTime returns that of this process.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		b.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// BenchmarkPushes sends silent pushes. The processor time includes that of the
// vendor, which checks signatures and decrypts.
func BenchmarkPushes(b *testing.B) {
	for _, f := range fakes(b) {
		b.Run(string(f.platform), func(b *testing.B) {
			p := *f.push(1, 1)
			due := outbound.DevicePush{UserID: p.UserID, App: p.App, Environment: p.Environment, Token: p.Token, Badge: pubsub.Badge{Epoch: p.Epoch, Version: p.Version}, Number: p.Number}
			q := &endless{due: due, total: int64(b.N), done: make(chan struct{}), failed: func(reason string) { b.Errorf("not sent: %s", reason) }}
			q.left.Store(q.total)
			before := processorTime(b)
			stop := run(b, Config{Apps: Apps{"chat": f.app}, Queue: q})
			<-q.done
			b.ReportMetric(float64((processorTime(b)-before).Nanoseconds())/float64(b.N), "cpu-ns/op")
			b.ReportMetric(float64(q.held.Load()), "held")
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "pushes/s")
			stop()
		})
	}
}
