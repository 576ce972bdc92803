package gateway

import (
	"sync"
	"time"
)

const (
	// greetingsAtOnce is how many clients are greeted at once: enough that those
	// of one partition share queries.
	greetingsAtOnce = 512
	// greetingWait is how long others wait for their turn before they are told to
	// come back later: less than clients wait for an answer.
	greetingWait = 8 * time.Second
)

// lobby is where clients wait to be greeted, that is for their user to be joined
// and their state to be read, in the order in which they came. Nothing waits
// with them: they cost no more than an idle connection. It is safe for
// concurrent use.
type lobby struct {
	mu sync.Mutex
	// inside is how many are being greeted.
	inside  int
	waiting []waiter
	// late ends the wait of who waits for too long; set while somebody waits.
	late *time.Timer
}

// waiter is a session that waits.
type waiter struct {
	session *session
	since   time.Time
}

// place is where a session is, guarded by the lobby's mutex.
type place uint8

const (
	placeNone    place = iota
	placeWaiting       // for its turn
	placeInside        // being greeted
	placeLeft          // has been greeted, or has ended
)

// enter has a session greeted as soon as it is its turn.
func (l *lobby) enter(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.place != placeNone: // it has ended meanwhile
	case l.inside < greetingsAtOnce:
		l.admit(s)
	default:
		s.place = placeWaiting
		l.waiting = append(l.waiting, waiter{s, time.Now()})
		if l.late == nil {
			l.late = time.AfterFunc(greetingWait, l.dismiss)
		}
	}
}

func (l *lobby) admit(s *session) {
	l.inside++
	s.place = placeInside
	s.ask(dutyGreet)
}

// leave makes room for the next, once a session is greeted or has ended. It may
// be called again.
func (l *lobby) leave(s *session) {
	l.mu.Lock()
	defer l.mu.Unlock()
	was := s.place
	s.place = placeLeft
	if was != placeInside {
		return
	}
	l.inside--
	for len(l.waiting) > 0 && l.inside < greetingsAtOnce {
		if next := l.pop(); next.place == placeWaiting {
			l.admit(next)
		}
	}
}

// pop takes who has waited for longest, and who may have ended meanwhile.
func (l *lobby) pop() *session {
	first := l.waiting[0].session
	l.waiting[0] = waiter{}
	l.waiting = l.waiting[1:]
	if len(l.waiting) == 0 {
		l.waiting = nil
		l.late.Stop()
		l.late = nil
	}
	return first
}

// dismiss sends away who has waited for too long.
func (l *lobby) dismiss() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.waiting) > 0 {
		if left := greetingWait - time.Since(l.waiting[0].since); left > 0 {
			l.late.Reset(left)
			return
		}
		if s := l.pop(); s.place == placeWaiting {
			s.end(*noRoom(CloseCapacity, "too many clients come at once", 0))
		}
	}
}
