package scenarios

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/badged/badged/tests/bench/load"
	"github.com/badged/badged/tests/bench/measure"
	"github.com/badged/badged/tests/bench/rig"
)

// floorRound measures the minimum latency of a durable event: a loopback round
// trip and two syncs, one for the append and one for the fold.
func floorRound(ctx context.Context, dir string, times int) (_ []measure.Measure, err error) {
	f, err := rig.SyncedFile(filepath.Join(dir, "floor"))
	if err != nil {
		return nil, fmt.Errorf("measure the floor: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close(), os.Remove(f.Name())) }()
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("measure the floor: %w", err)
	}
	served := make(chan error, 1)
	go func() { served <- syncEcho(l, f) }()
	took, err := callEcho(ctx, l.Addr().String(), times)
	if err := errors.Join(err, l.Close(), <-served); err != nil {
		return nil, fmt.Errorf("measure the floor: %w", err)
	}
	slices.Sort(took)
	return []measure.Measure{
		measure.Of(load.LatencyMedian, "ms", measure.Percentile(took, 50)),
		measure.Of(load.LatencyTail, "ms", measure.Percentile(took, 99)),
	}, nil
}

// callEcho sends lines and returns how long each took to come back.
func callEcho(ctx context.Context, address string, times int) (took []float64, err error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	answers := bufio.NewReader(conn)
	for range times {
		began := time.Now()
		if _, err := conn.Write([]byte("event\n")); err != nil {
			return nil, err
		}
		if _, err := answers.ReadSlice('\n'); err != nil {
			return nil, err
		}
		took = append(took, measure.Milliseconds(time.Since(began)))
	}
	return took, nil
}

// syncEcho takes one connection and sends each line back after two syncs.
func syncEcho(l net.Listener, f *os.File) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	lines := bufio.NewScanner(conn)
	for i := 0; lines.Scan(); i += 2 {
		for page := i; page < i+2; page++ {
			if err := rig.SyncOnePage(f, page); err != nil {
				return err
			}
		}
		if _, err := conn.Write(append(lines.Bytes(), '\n')); err != nil {
			return err
		}
	}
	return lines.Err()
}
