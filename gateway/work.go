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
	taskSend                   // the mailbox may have something, or waits for the tables
	taskCheck                  // ping the client, check whether its token has expired
	taskRead                   // repeat reads that were ahead of a room
	taskEnd                    // say goodbye; nothing follows
)

// worker runs a session's tasks one after the other: those that only write in the
// crew, others in a goroutine that lives only while there are any. Most
// clients are idle at any moment: they have no goroutine, and no stack as deep as a
// read of the tables needs.
type worker struct {
	taskMu    sync.Mutex
	scheduled task
	// busy is set while tasks run or the session waits for the crew, before the
	// session begins and after it has ended: then schedule starts nothing.
	busy bool

	// Only the goroutine uses the rest.

	// sender is nil until the session has joined.
	sender *stateSender
	// joined is set once the hub knows the session.
	joined bool
	// check schedules taskCheck at pingAt, when the next ping is due, or when the
	// token expires if that is earlier. Set together with sender.
	check  *time.Timer
	pingAt time.Time
}

// begin runs the tasks scheduled so far, and those to come.
func (s *session) begin() {
	s.taskMu.Lock()
	defer s.taskMu.Unlock()
	if s.busy = s.scheduled != 0; s.busy {
		go s.work()
	}
}

// schedule makes the worker run tasks soon. It does not block. ADR 23 has the reasons.
func (s *session) schedule(tasks task) {
	s.taskMu.Lock()
	defer s.taskMu.Unlock()
	s.scheduled |= tasks
	switch {
	case s.busy:
	case tasks == taskSend:
		s.busy = true
		s.gateway.crew.Add(s)
	default:
		s.busy = true
		go s.work()
	}
}

// write sends frames, which is usually all there is to do. If there is more, which may
// take long, work takes over.
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
		s.scheduled |= taskSend // the mailbox still says that the tables must be read
		go s.work()
	case s.scheduled == taskSend:
		s.gateway.crew.Add(s)
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
			ctx, done := s.during()
			s.finish(ctx)
			done()
			return // still busy: no task runs from here on
		}
		if tasks&taskGreet != 0 {
			ctx, done := s.during()
			s.join(ctx)
			done()
		}
		sync, err := s.do(tasks)
		if sync && err == nil { // rare, and a context costs as much as a frame's encoding
			ctx, done := s.during()
			err = s.sender.sync(ctx)
			done()
		}
		if err != nil {
			s.fail(err)
		}
		if tasks&taskRead != 0 {
			ctx, done := s.during()
			s.repeatReads(ctx)
			done()
		}
	}
}

// do writes what there is to write. It reports whether the tables must be read.
// Its errors are those of writing.
func (s *session) do(tasks task) (sync bool, err error) {
	if s.sender == nil {
		return false, nil // the answer to the hello, still to come, reads the tables
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

// fail ends the session after a frame could not be written.
func (s *session) fail(err error) {
	if timeout, ok := errors.AsType[net.Error](err); ok && timeout.Timeout() {
		s.end(closing{code: protocol.CloseSlow, reason: "the connection is too slow"})
		return
	}
	s.leave() // the connection is broken: no reason can be sent
}

// join adds the session to those of its user in the hub, and makes its sender.
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

// checkClient pings the client. It ends the session when the client has been
// silent for two pings, or when its token has expired.
func (s *session) checkClient() error {
	now := time.Now()
	if !now.Before(s.expiresAt()) {
		s.end(*tokenEnded())
		return nil
	}
	if due := !now.Before(s.pingAt); due {
		if !s.link.alive() {
			s.end(closing{code: protocol.CloseNoPong, reason: "no sign of life"})
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

// finish says goodbye and releases all that the session holds.
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
		// The session has ended; leaving the bus has not.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), g.cfg.JoinTimeout)
		defer cancel()
		if err := g.hub.leave(ctx, s, s.userID); err != nil {
			g.log.DebugContext(ctx, "leave", "error", err)
		}
	}
}
