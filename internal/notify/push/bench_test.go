package push

import (
	"context"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// endless is a Queue that has that many pushes.
type endless struct {
	push Push
	// held are those that wait because the vendor is slow.
	left, told, held atomic.Int64
	total            int64
	done             chan struct{}
	failed           func(reason string)
}

func (e *endless) Next(ctx context.Context, _ string, _ Platform, limit int) ([]Due, error) {
	n := min(int64(limit), e.left.Load())
	if n <= 0 {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	e.left.Add(-n)
	all := make([]Due, n)
	for i := range all {
		all[i] = Due{Push: e.push, DueAt: time.Now()}
	}
	return all, nil
}

func (e *endless) Told(Due, time.Duration) {
	if e.told.Add(1) == e.total {
		close(e.done)
	}
}

func (e *endless) Retry(d Due, _ int, _ time.Duration, reason string) { e.failed(reason); e.Told(d, 0) }

func (e *endless) Hold(d Due, _ time.Duration) { e.held.Add(1); e.Told(d, 0) }

func (e *endless) Gone(d Due, reason string) { e.failed(reason); e.Told(d, 0) }

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
			q := &endless{push: p, total: int64(b.N), done: make(chan struct{}), failed: func(reason string) { b.Errorf("not sent: %s", reason) }}
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
