package gateway

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/badged/badged/gateway/protocol"
	"github.com/badged/badged/pubsub"
)

// task is a set of tasks for a client.
type task uint8

const (
	taskGreet task = 1 << iota // answer the hello
	taskSend                   // send what the mailbox has, or read the tables if it is syncing
	taskCheck                  // ping the client and check whether its token has expired
	taskRead                   // append the session's reads again, see claims.go
	taskEnd                    // close the link; no task follows
)

// worker runs the tasks of a session, one after the other. Tasks that only write run in the
// pool. Other tasks run in a goroutine that ends when no task is left. Most clients are idle:
// an idle client has no goroutine, and so no stack that has grown during a read of the tables.
type worker struct {
	taskMu    sync.Mutex
	scheduled task
	// busy is true before the session begins, while tasks run, while the session is queued in
	// the pool, and after the session has ended. While busy is true, schedule starts no
	// goroutine.
	busy bool

	// Only the running task uses the fields below.

	// sender is nil until the session has joined the hub.
	sender *stateSender
	// joined is set just before the session joins the hub. If it is true, finish removes the
	// session from the hub.
	joined bool
	// check is the timer that schedules taskCheck when the next ping is due (pingAt) or when
	// the token expires, whichever is earlier. check and pingAt are set together with sender.
	check  *time.Timer
	pingAt time.Time
}

// begin lets the worker run tasks: the tasks that are already scheduled, and all later tasks.
func (s *session) begin() {
	s.taskMu.Lock()
	defer s.taskMu.Unlock()
	if s.busy = s.scheduled != 0; s.busy {
		go s.work()
	}
}

// schedule makes the worker run tasks soon. It does not block. See ADR 23.
func (s *session) schedule(tasks task) {
	s.taskMu.Lock()
	defer s.taskMu.Unlock()
	s.scheduled |= tasks
	switch {
	case s.busy:
	case tasks == taskSend:
		s.busy = true
		s.gateway.pool.Add(s)
	default:
		s.busy = true
		go s.work()
	}
}

// Write implements workers.Writer: the pool calls it to send the frames of the session. If
// other tasks are scheduled, or if the tables must be read, Write calls work in a new
// goroutine, since such tasks may take long and must not block the pool.
func (s *session) Write() {
	s.taskMu.Lock()
	if s.scheduled != taskSend {
		s.taskMu.Unlock()
		go s.work()
		return
	}
	s.scheduled = 0
	s.taskMu.Unlock()
	sync, err := s.do(taskSend)
	if err != nil {
		s.fail(err)
	}
	s.taskMu.Lock()
	defer s.taskMu.Unlock()
	switch {
	case sync:
		s.scheduled |= taskSend // the mailbox is still syncing
		go s.work()
	case s.scheduled == taskSend:
		s.gateway.pool.Add(s)
	case s.scheduled != 0:
		go s.work()
	default:
		s.busy = false
	}
}

// work runs tasks until none is scheduled.
func (s *session) work() {
	for {
		s.taskMu.Lock()
		tasks := s.scheduled
		s.scheduled = 0
		s.busy = tasks != 0
		s.taskMu.Unlock()
		if tasks == 0 {
			return
		}
		if tasks&taskEnd != 0 {
			ctx, done := s.newContext()
			s.finish(ctx)
			done()
			return // The session stays busy, so that no task runs from here on.
		}
		if tasks&taskGreet != 0 {
			ctx, done := s.newContext()
			s.join(ctx)
			done()
		}
		sync, err := s.do(tasks)
		if sync && err == nil { // Create a context only for a sync: it costs as much as encoding a frame.
			ctx, done := s.newContext()
			err = s.sender.sync(ctx)
			done()
		}
		if err != nil {
			s.fail(err)
		}
		if tasks&taskRead != 0 {
			ctx, done := s.newContext()
			s.repeatReads(ctx)
			done()
		}
	}
}

// do runs taskSend and taskCheck, if the given tasks include them. It also runs taskSend if they
// include taskGreet. sync reports whether the tables must be read. err is the error of a write.
func (s *session) do(tasks task) (sync bool, err error) {
	if s.sender == nil {
		return false, nil // the session has not joined yet; its greeting will read the tables
	}
	if tasks&(taskGreet|taskSend) != 0 {
		d := s.mailbox.Take()
		sync = d.Sync
		if err := s.sender.deliver(&d); err != nil {
			return false, err
		}
	}
	if tasks&taskCheck != 0 {
		return sync, s.checkClient()
	}
	return sync, nil
}

// fail ends the session after a write has failed.
func (s *session) fail(err error) {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.end(closing{code: protocol.CloseSlow, reason: "the connection is too slow"})
		return
	}
	s.leave() // The connection is broken, so no reason can be sent.
}

// join adds the session to the hub, and creates its sender.
func (s *session) join(ctx context.Context) {
	g := s.gateway
	joinCtx, cancel := context.WithTimeout(ctx, g.cfg.JoinTimeout)
	defer cancel()
	user := pubsub.Address{ID: s.userID, Partition: s.partition()}
	s.joined = true
	if err := g.hub.join(joinCtx, s, user); err != nil && ctx.Err() == nil {
		g.log.WarnContext(ctx, "the bus did not acknowledge in time; serving from the tables", "error", err)
	}
	s.sender = newStateSender(s)
	s.pingAt = time.Now().Add(g.cfg.PingInterval)
	s.check = time.AfterFunc(s.untilCheck(), func() { s.schedule(taskCheck) })
}

// untilCheck returns the time until the next taskCheck.
func (s *session) untilCheck() time.Duration {
	return min(time.Until(s.pingAt), time.Until(s.expiresAt()))
}

// checkClient pings the client if a ping is due. It ends the session if the client did not
// answer two pings, or if its token has expired.
func (s *session) checkClient() error {
	now := time.Now()
	if !now.Before(s.expiresAt()) {
		s.end(*tokenEnded())
		return nil
	}
	if due := !now.Before(s.pingAt); due {
		if !s.link.alive() {
			s.end(closing{code: protocol.CloseNoPong, reason: "the client does not answer pings"})
			return nil
		}
		if err := s.link.ping(); err != nil {
			return err
		}
		s.pingAt = now.Add(s.gateway.cfg.PingInterval)
	}
	s.check.Reset(s.untilCheck())
	return nil
}

// finish closes the link and releases the resources of the session.
func (s *session) finish(ctx context.Context) {
	g := s.gateway
	defer g.running.Done()
	defer g.dismiss(s)
	if s.sender != nil {
		s.check.Stop()
		s.sender.stop()
	}
	g.admission.leave(s)
	s.goodbye()
	if s.joined {
		// ctx has ended with the session, so the call that unsubscribes from the user needs
		// another context.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.JoinTimeout)
		defer cancel()
		if err := g.hub.leave(ctx, s, s.userID); err != nil {
			g.log.DebugContext(ctx, "leave", "error", err)
		}
	}
}
