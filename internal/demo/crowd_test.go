package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/pgtest"
)

// run lets the members of the room change, until the test ends.
func (c *crowd) runUntilEnd(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
}

// askMembers asks a demo for a number of members.
func (f *fixture) askMembers(t *testing.T, members int) {
	t.Helper()
	if w := ask(t, f, http.MethodPost, "/demo/room", fmt.Sprintf(`{"members":%d}`, members)); w.Code != http.StatusOK {
		t.Fatalf("%d members: %d %s", members, w.Code, w.Body)
	}
}

// nextCrowd returns the next state of the room that a page gets.
func (p *page) nextCrowd(t *testing.T) (s crowdState) {
	t.Helper()
	if data := p.next("room"); json.Unmarshal([]byte(data), &s) != nil {
		t.Fatalf("state is %q, %v", data, p.lines.Err())
	}
	return s
}

// until reads states until the room has reached its target.
func (p *page) until(t *testing.T, members int) (states []crowdState) {
	t.Helper()
	for {
		s := p.nextCrowd(t)
		states = append(states, s)
		if s.Members == members && s.Target == members {
			return states
		}
	}
}

// members returns how many members badged has for the room.
func (f *fixture) members(t *testing.T) int {
	t.Helper()
	return f.count(t, `SELECT sum(members) FROM badged.rooms WHERE conversation_id = $1`, townHall)
}

func TestGuestsJoinAndLeaveInSteps(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	f.crowd.runUntilEnd(t)
	p := openPage(t, serve(t, f))
	if s := f.crowd.now(); s != (crowdState{Members: fewestMembers, Target: fewestMembers}) {
		t.Errorf("at first the room is %+v", s)
	}
	f.askMembers(t, 2*stepSize+10)
	want := []crowdState{
		{Members: fewestMembers, Target: 2*stepSize + 10},
		{Members: fewestMembers + stepSize, Target: 2*stepSize + 10},
		{Members: fewestMembers + 2*stepSize, Target: 2*stepSize + 10},
		{Members: 2*stepSize + 10, Target: 2*stepSize + 10},
	}
	for i, s := range p.until(t, 2*stepSize+10) {
		if i >= len(want) || s != want[i] {
			t.Errorf("state %d is %+v, want one of %+v", i, s, want)
		}
	}
	if n := f.members(t); n != 2*stepSize+10 {
		t.Errorf("badged has %d members, want %d", n, 2*stepSize+10)
	}
	f.askMembers(t, fewestMembers)
	p.until(t, fewestMembers)
	if n := f.members(t); n != fewestMembers {
		t.Errorf("badged has %d members after most have left, want %d", n, fewestMembers)
	}
	// The people never leave, and the first guests leave last.
	for _, user := range []string{"ada", "ben", "guest-1", "guest-3"} {
		if n := f.count(t, `SELECT count(*) FROM badged.conversations WHERE conversation_id = $1 AND user_id = $2 AND joined IS NOT NULL`, townHall, user); n != 1 {
			t.Errorf("%s is not a member", user)
		}
	}
}

// A new target ends the way to the former one.
func TestTargetThatChangesOnTheWay(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	p := openPage(t, serve(t, f))
	f.askMembers(t, mostMembers)
	f.askMembers(t, 20)
	f.crowd.runUntilEnd(t)
	if states := p.until(t, 20); len(states) > 3 {
		t.Errorf("there were the states %+v on the way to 20 members", states)
	}
}

func TestRoomRefusesImpossibleSizes(t *testing.T) {
	f := newFixture(t)
	for _, body := range []string{`{"members":4}`, `{"members":100001}`, `{}`, `{"members":"many"}`, `many`} {
		if w := ask(t, f, http.MethodPost, "/demo/room", body); w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
	if s := f.crowd.now(); s.Target != fewestMembers {
		t.Errorf("a refused request has set the target to %d", s.Target)
	}
}

// While the database fails, pages are informed once. When it recovers, the room gets the
// requested members.
func TestRoomRecoversFromADatabaseThatFails(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	f.crowd.runUntilEnd(t)
	p := openPage(t, serve(t, f))
	f.exec(t, `ALTER TABLE demo.rooms RENAME TO rooms_away`)
	f.askMembers(t, 50)
	p.nextCrowd(t) // the target
	if s := p.nextCrowd(t); s.Members != fewestMembers || s.Target != 50 || s.Trouble != "The database does not answer. The demo tries again." {
		t.Errorf("state is %+v, want trouble with the database", s)
	}
	f.exec(t, `ALTER TABLE demo.rooms_away RENAME TO rooms`)
	states := p.until(t, 50)
	if s := states[len(states)-1]; s.Trouble != "" || len(states) != 1 {
		t.Errorf("then come %+v, want the 50 members without trouble", states)
	}
}

// Trouble ends also if the target becomes what the room has.
func TestTargetThatIsTakenBackWhileTheDatabaseFails(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	f.crowd.runUntilEnd(t)
	p := openPage(t, serve(t, f))
	f.exec(t, `ALTER TABLE demo.rooms RENAME TO rooms_away`)
	f.askMembers(t, 50)
	p.nextCrowd(t) // the target
	p.nextCrowd(t) // trouble
	f.askMembers(t, fewestMembers)
	if s := p.nextCrowd(t); s.Trouble == "" || s.Target != fewestMembers {
		t.Errorf("state is %+v, want trouble until the database answers", s)
	}
	f.exec(t, `ALTER TABLE demo.rooms_away RENAME TO rooms`)
	if s := p.nextCrowd(t); s != (crowdState{Members: fewestMembers, Target: fewestMembers}) {
		t.Errorf("state is %+v, want no trouble", s)
	}
}

// If the badges are behind a step, the step is not repeated, and it ends only when they include
// it.
func TestRoomWaitsForBadges(t *testing.T) {
	f := newFixture(t)
	f.fold(t)
	behind := make(chan bool)
	isFolded := f.crowd.isFolded
	f.crowd.isFolded = func(ctx context.Context, transactionID int64) (bool, error) {
		if <-behind {
			return false, errBehind
		}
		return isFolded(ctx, transactionID)
	}
	f.crowd.runUntilEnd(t)
	t.Cleanup(func() { close(behind) })
	p := openPage(t, serve(t, f))
	f.askMembers(t, 50)
	p.nextCrowd(t)
	behind <- true
	if s := p.nextCrowd(t); s.Members != fewestMembers || s.Trouble != "Badges are behind. The demo waits for them." {
		t.Errorf("state is %+v, want trouble with badges", s)
	}
	published := func() int {
		n := 0
		for _, e := range f.published(t) {
			if e.Type == events.RoomJoined {
				n++
			}
		}
		return n
	}
	before := published()
	for done := false; !done; {
		select {
		case behind <- false:
		default:
			done = f.crowd.now().Members == 50
		}
	}
	if n := published(); n != before {
		t.Errorf("%d more joins were published for the same members", n-before)
	}
}

func TestRestartKeepsTheRoom(t *testing.T) {
	url := pgtest.NewDB(t, migrated())
	f := fixtureOn(t, url)
	f.fold(t)
	f.crowd.runUntilEnd(t)
	p := openPage(t, serve(t, f))
	f.askMembers(t, 40)
	p.until(t, 40)
	before := len(f.published(t))
	again := fixtureOn(t, url)
	if s := again.crowd.now(); s != (crowdState{Members: 40, Target: 40}) {
		t.Errorf("after a restart the room is %+v, want 40 members", s)
	}
	if n := len(f.published(t)); n != before {
		t.Errorf("the restart published %d events", n-before)
	}
}
