package projector

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/pubsub"
)

// What verifying samples may cost. Searching the log takes somewhat less than
// half a nanosecond of one core for a byte and a user, so that this is at most
// some 3 % of a core.
const (
	sampleBytesPerSecond = 64 << 20
	// sampleFloor is what any run may cost, however short the interval.
	sampleFloor = 64 << 20
	// searchPasses is what a search costs besides, as if for so many users.
	searchPasses = 4
)

// sample verifies, until ctx is done, some users of one of the partitions that
// are folded here in every interval.
func (p *Projector) sample(ctx context.Context) error {
	if p.cfg.VerifyInterval <= 0 {
		return nil
	}
	v := NewVerifier(p.cfg.Pool, p.cfg.Log)
	// What a run may cost is saved up since the last one: where the log is long,
	// runs are fewer, not left out for ever.
	last := time.Now()
	for {
		// Jitter, so that many projectors do not search in step.
		wait := time.NewTimer(p.cfg.VerifyInterval/2 + rand.N(p.cfg.VerifyInterval)) //nolint:gosec // spreads load, guards nothing
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-wait.C:
		}
		owned := p.ownedPartitions()
		if len(owned) == 0 {
			continue
		}
		partition := owned[rand.N(len(owned))] //nolint:gosec // a sample, which nobody gains from guessing
		ran, err := p.verifySome(ctx, v, partition, time.Since(last))
		if err != nil && ctx.Err() == nil {
			p.metrics.verifyFailed.Inc()
			p.log.WarnContext(ctx, "cannot verify a sample of users", "partition", partition, "error", err)
		}
		if ran {
			last = time.Now()
		}
	}
}

// verifySome verifies a sample of the users of a partition, and mends those
// whose rows are wrong where that is wanted. It reports false where it put that
// off, because the log is too long for what was saved up since the last run.
func (p *Projector) verifySome(ctx context.Context, v *Verifier, partition int, since time.Duration) (ran bool, err error) {
	n, err := p.affordable(ctx, partition, since)
	if err != nil {
		return false, err
	}
	if n == 0 {
		p.metrics.verifyPutOff.Inc()
		return false, nil
	}
	return true, p.verifyUsers(ctx, v, partition, n)
}

// verifyUsers verifies n users of a partition.
func (p *Projector) verifyUsers(ctx context.Context, v *Verifier, partition, n int) error {
	users, err := v.Sample(ctx, partition, n)
	if err != nil || len(users) == 0 {
		return err
	}
	wrong := map[string][]Difference{}
	_, err = v.Verify(ctx, partition, VerifyOptions{
		Users: users,
		Found: func(d Difference) { wrong[d.UserID] = append(wrong[d.UserID], d) },
	})
	if err != nil {
		return err
	}
	p.metrics.verifyUsers.Add(float64(len(users)))
	p.metrics.verifyMismatches.Add(float64(len(wrong)))
	for user, differences := range wrong {
		p.log.ErrorContext(ctx, "the badge of a user is not what the log says", "user", user, "partition", partition, "differences", firstDifferences(differences))
		if !p.cfg.SelfHeal {
			continue
		}
		update, mended, err := v.Mend(ctx, user)
		if err != nil {
			return err
		}
		if mended {
			p.metrics.verifyMended.Inc()
			p.log.InfoContext(ctx, "the badge of a user was mended", "user", user, "partition", partition, "version", update.Version)
			p.enqueue([]pubsub.Update{update})
		}
	}
	return nil
}

// affordable returns how many users of a partition may be verified in a run so
// long after the last one: VerifySample at most, and none where its log is too
// long.
func (p *Projector) affordable(ctx context.Context, partition int, since time.Duration) (int, error) {
	var size int64
	err := p.cfg.Pool.QueryRow(ctx, `SELECT coalesce(sum(pg_table_size(relid)), 0)::bigint FROM pg_partition_tree($1)`, "badged."+events.Topic(partition)).Scan(&size)
	if err != nil {
		return 0, fmt.Errorf("measure the log of partition %d: %w", partition, err)
	}
	return sampleSize(p.cfg.VerifySample, since, size), nil
}

// sampleSize returns how many of up to wanted users may be verified, so long
// after others were, in a log of so many bytes.
func sampleSize(wanted int, since time.Duration, logBytes int64) int {
	budget := max(int64(since.Seconds()*sampleBytesPerSecond), sampleFloor)
	passes := budget / max(logBytes, 1)
	return int(min(max(passes-searchPasses, 0), int64(wanted), maxSought))
}

// firstDifferences returns the first few differences as people read them.
func firstDifferences(differences []Difference) []string {
	const most = 10
	texts := make([]string, 0, most+1)
	for i, d := range differences {
		if i == most {
			texts = append(texts, fmt.Sprintf("and %d more", len(differences)-most))
			break
		}
		texts = append(texts, d.String())
	}
	return texts
}
