package webhook

import (
	"context"
	"sync"
	"time"

	"github.com/badged/badged/internal/base/wait"
	"github.com/badged/badged/internal/notify/outbound"
)

// runningFeed is a running feed with the function that stops it.
type runningFeed struct {
	*feed
	stop context.CancelFunc
}

// feedAll runs a separate feed for each active webhook, so that a slow endpoint delays only its
// own calls. When ctx is done, feedAll waits until all calls in progress have ended, and returns.
func (s *Sender) feedAll(ctx context.Context) {
	// Calls in progress may continue for StopTimeout after ctx is done.
	calling, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	var running sync.WaitGroup
	defer func() { // ctx is done
		late := time.AfterFunc(s.cfg.StopTimeout, cancel)
		defer late.Stop()
		running.Wait()
	}()
	feeds := map[string]runningFeed{}
	known := map[string]bool{}
	for {
		readAt := time.Now()
		webhooks, err := s.cfg.Store.Webhooks(ctx)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.storeFailed(ctx, "cannot read the webhooks, will try again", err)
		default:
			before := known
			known = map[string]bool{}
			for _, w := range webhooks {
				known[w.Name] = true
				s.cfg.Metrics.show(w)
				f, isRunning := feeds[w.Name]
				switch {
				case isRunning && w.State == outbound.Active:
					if f.update(w, readAt) {
						running.Go(func() { f.record(calling, true) })
					}
				case isRunning:
					f.stop()
					delete(feeds, w.Name)
				case w.State == outbound.Active:
					feedCtx, stop := context.WithCancel(ctx)
					f := newFeed(s, w)
					feeds[w.Name] = runningFeed{f, stop}
					running.Go(func() { f.run(feedCtx, calling) })
				}
			}
			for name := range before {
				if known[name] {
					continue
				}
				if f, isRunning := feeds[name]; isRunning {
					f.stop()
					delete(feeds, name)
				}
				s.cfg.Metrics.forget(name)
			}
		}
		if wait.For(ctx, s.cfg.RefreshInterval) != nil {
			return
		}
	}
}

// storeFailed logs and counts an error of the store.
func (s *Sender) storeFailed(ctx context.Context, text string, err error) {
	s.cfg.Metrics.failed.Inc()
	s.log.WarnContext(ctx, text, "error", err)
}
