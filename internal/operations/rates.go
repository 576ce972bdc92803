package operations

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/badged/badged/internal/cluster"
)

// Process is the state of a process of badged at its last sample.
type Process struct {
	Process     string       `json:"process" doc:"The process, as host/pid."`
	Roles       []string     `json:"roles" doc:"The roles of the process."`
	StartedAt   time.Time    `json:"started_at" doc:"The time of the start."`
	SeenAt      time.Time    `json:"seen_at" doc:"When the process wrote its last sample."`
	Connections *Connections `json:"connections,omitempty" doc:"The client connections of the process; absent if it does not have the role gateway."`
}

// Connections describes the clients connected to one process.
type Connections struct {
	WebSockets   int64  `json:"websockets" doc:"The number of open WebSockets."`
	EventStreams int64  `json:"event_streams" doc:"The number of open streams of server-sent events."`
	Limits       Limits `json:"limits" doc:"The limits of the process."`
	FramesSent   int64  `json:"frames_sent" doc:"The number of frames sent since the process started."`
	Repairs      int64  `json:"reconciliation_repairs" doc:"The number of clients that had missed an update and were corrected, since the process started."`
	Gaps         int64  `json:"bus_gaps" doc:"The number of outages of the bus since the process started."`
}

// silentSamples is a number of sample intervals: a process counts as stopped if it has written no
// sample for this long.
const silentSamples = 4

// Processes returns the processes that have written a sample recently, in any available
// database.
func (o *Operations) Processes(ctx context.Context) ([]Process, error) {
	newest := map[string]Process{}
	err := o.available(func(s *cluster.Database) error {
		rows, _ := s.Pool.Query(ctx, statements.Get("list processes"), (silentSamples * SampleInterval).Seconds())
		processes, err := pgx.CollectRows(rows, scanProcess)
		for _, p := range processes {
			if known, ok := newest[p.Process]; !ok || p.SeenAt.After(known.SeenAt) {
				newest[p.Process] = p
			}
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return slices.SortedFunc(maps.Values(newest), func(a, b Process) int { return cmp.Compare(a.Process, b.Process) }), nil
}

// available calls the function do for each available database. It fails if no database is
// available.
func (o *Operations) available(do func(*cluster.Database) error) error {
	available, err := o.cfg.Cluster.Available()
	for _, s := range available {
		if err := do(s); err != nil {
			return s.Wrap(err)
		}
	}
	return err
}

func scanProcess(row pgx.CollectableRow) (p Process, err error) {
	var c counted
	err = row.Scan(&p.Process, &p.Roles, &p.StartedAt, &p.SeenAt, &c)
	p.StartedAt, p.SeenAt = p.StartedAt.UTC(), p.SeenAt.UTC()
	if c.Connections != nil {
		p.Connections = &Connections{
			WebSockets: *c.Connections - c.EventStreams, EventStreams: c.EventStreams,
			FramesSent: c.Frames, Repairs: c.Repairs, Gaps: c.Gaps,
		}
		if c.Limits != nil {
			p.Connections.Limits = *c.Limits
		}
	}
	return p, err
}

// Rates are the rates of the last hour, summed over all processes.
type Rates struct {
	IntervalSeconds float64 `json:"interval_seconds" doc:"Each point covers this number of seconds before its time."`
	Points          []Rate  `json:"points" doc:"The points, oldest first."`
}

// Rate is the activity in one interval. A value that is unknown is nil, and null in JSON.
type Rate struct {
	At           time.Time `json:"at" doc:"The end of the interval."`
	Appended     *float64  `json:"appended_per_second" type:"number,null" doc:"Events per second that all publishers appended, including events that were rolled back. An event counts once for each partition that stores it."`
	Folded       *float64  `json:"folded_per_second" type:"number,null" doc:"Events per second that were folded. An event counts once for each partition that stores it."`
	DelayP50     *float64  `json:"delay_p50_seconds" type:"number,null" doc:"The median time from the append of the oldest event of a batch to the commit of the batch, as precise as the buckets of the metric badged_projector_delay_seconds."`
	DelayP99     *float64  `json:"delay_p99_seconds" type:"number,null" doc:"The 99th percentile of the time that delay_p50_seconds describes."`
	WebSockets   *int64    `json:"websockets" type:"integer,null" doc:"WebSockets that were open at the end of the interval."`
	EventStreams *int64    `json:"event_streams" type:"integer,null" doc:"Streams of server-sent events that were open at the end of the interval."`
	Frames       *float64  `json:"frames_per_second" type:"number,null" doc:"Frames per second that were sent to clients."`
	Repairs      *float64  `json:"repairs_per_second" type:"number,null" doc:"Clients per second that had missed an update and were corrected."`
}

// Rates returns the points of the last hour that are later than `since`. The events of all
// databases are added up. The connections, frames and delays are read from only one database, since
// each process writes the same values to all databases.
func (o *Operations) Rates(ctx context.Context, since time.Time) (Rates, error) {
	sum := Rates{IntervalSeconds: pointWidth.Seconds(), Points: []Rate{}}
	at := map[time.Time]int{}
	err := o.available(func(s *cluster.Database) error {
		points, err := readRates(ctx, s.Pool, since)
		for _, p := range points {
			i, ok := at[p.At]
			if !ok {
				at[p.At] = len(sum.Points)
				sum.Points = append(sum.Points, p)
				continue
			}
			known := &sum.Points[i]
			known.Appended, known.Folded = plus(known.Appended, p.Appended), plus(known.Folded, p.Folded)
			if known.WebSockets == nil {
				known.WebSockets, known.EventStreams, known.Frames, known.Repairs = p.WebSockets, p.EventStreams, p.Frames, p.Repairs
			}
			if known.DelayP50 == nil {
				known.DelayP50, known.DelayP99 = p.DelayP50, p.DelayP99
			}
		}
		return err
	})
	slices.SortFunc(sum.Points, func(a, b Rate) int { return a.At.Compare(b.At) })
	return sum, err
}

func readRates(ctx context.Context, db DB, since time.Time) (points []Rate, err error) {
	// Also read the samples shortly before the first point: the rates of the first point are
	// computed from the differences between samples.
	const before = 2 * silentSamples * SampleInterval
	earliest := time.Time{}
	if !since.IsZero() {
		earliest = since.Add(-before)
	}
	rows, _ := db.Query(ctx, statements.Get("list samples"), earliest, sampleWindow.Seconds())
	r := ratings{last: map[run]sample{}}
	var one sample
	var now time.Time
	_, err = pgx.ForEachRow(rows, []any{&one.run.process, &one.run.started, &one.takenAt, &one.counted, &now}, func() error {
		r.add(one)
		one.counted = counted{}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read samples: %w", err)
	}
	for _, b := range r.buckets {
		if b.end.After(since) && !b.end.Add(pointPatience).After(now) {
			points = append(points, b.rate())
		}
	}
	return points, nil
}

const (
	// pointWidth is the time between two points. Every process writes at least one sample in
	// that time.
	pointWidth = 2 * SampleInterval
	// pointPatience is how long after the end of a point's interval samples of this interval may
	// arrive. The point is returned only after this time, so that a returned point never changes.
	pointPatience = time.Second
)

// run identifies one run of a process: the process and its start.
type run struct {
	process string
	started time.Time
}

// sample has the counters of a process at one time.
type sample struct {
	run     run
	takenAt time.Time
	counted counted
}

// ratings computes points from samples. The samples must be added in the order of time.
type ratings struct {
	last map[run]sample
	// log is the latest sample of any process. Its Logged and Folded are the greatest counts so
	// far.
	log     *sample
	buckets []*bucket
}

// bucket collects the samples of one interval, from which one point is computed. end is the end
// of the interval.
type bucket struct {
	end time.Time
	// logged and folded count the events that were appended and folded during `spent`, the time
	// between the samples.
	logged, folded float64
	spent          time.Duration
	delays         histogram
	gateways       map[run]*traffic
}

// traffic counts what one gateway did during `spent`, the time between its samples: frames sent,
// and clients corrected (repairs). sample is its last sample.
type traffic struct {
	sample          sample
	frames, repairs float64
	spent           time.Duration
}

func (r *ratings) add(s sample) {
	at := s.takenAt.Truncate(pointWidth).Add(pointWidth).UTC()
	if n := len(r.buckets); n == 0 || r.buckets[n-1].end.Before(at) {
		r.buckets = append(r.buckets, &bucket{end: at, gateways: map[run]*traffic{}})
	}
	b := r.buckets[len(r.buckets)-1]
	// All processes count the events of the same log, at slightly different times. So a sample may
	// have lower counts than an earlier sample.
	log := s
	if r.log != nil {
		log.counted.Logged = max(log.counted.Logged, r.log.counted.Logged)
		log.counted.Folded = max(log.counted.Folded, r.log.counted.Folded)
		b.logged += float64(log.counted.Logged - r.log.counted.Logged)
		b.folded += float64(log.counted.Folded - r.log.counted.Folded)
		b.spent += log.takenAt.Sub(r.log.takenAt)
	}
	r.log = &log

	last, known := r.last[s.run]
	r.last[s.run] = s
	if known {
		b.delays.add(s.counted.Delays, last.counted.Delays)
	}
	if s.counted.Connections == nil {
		return
	}
	g := b.gateways[s.run]
	if g == nil {
		g = &traffic{}
		b.gateways[s.run] = g
	}
	g.sample = s
	if known {
		g.frames += float64(s.counted.Frames - last.counted.Frames)
		g.repairs += float64(s.counted.Repairs - last.counted.Repairs)
		g.spent += s.takenAt.Sub(last.takenAt)
	}
}

func (b *bucket) rate() Rate {
	r := Rate{At: b.end, DelayP50: b.delays.quantile(0.5), DelayP99: b.delays.quantile(0.99)}
	if b.spent > 0 {
		appended, folded := b.logged/b.spent.Seconds(), b.folded/b.spent.Seconds()
		r.Appended, r.Folded = &appended, &folded
	}
	var sockets, streams int64
	var frames, repairs float64
	for _, g := range b.gateways {
		sockets += *g.sample.counted.Connections - g.sample.counted.EventStreams
		streams += g.sample.counted.EventStreams
		if g.spent > 0 {
			frames += g.frames / g.spent.Seconds()
			repairs += g.repairs / g.spent.Seconds()
			r.Frames, r.Repairs = &frames, &repairs
		}
	}
	if len(b.gateways) > 0 {
		r.WebSockets, r.EventStreams = &sockets, &streams
	}
	return r
}

// plus adds two values. If one value is unknown (nil), plus returns the other value.
func plus(a, b *float64) *float64 {
	if a == nil || b == nil {
		if a == nil {
			return b
		}
		return a
	}
	sum := *a + *b
	return &sum
}
