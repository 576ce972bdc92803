package copier_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/badged/badged/internal/partition/copier"
)

type operation struct {
	copier.Operation
	round func() (int, error)
}

func (o operation) Mark() func() { return func() {} }

func (o operation) Round(context.Context, int) (int, error) { return o.round() }

// Catching up ends when a round is quick, and on a slow machine when rounds do not become
// quicker.
func TestCatchUp(t *testing.T) {
	t.Parallel()
	type round struct {
		changes int
		took    time.Duration
	}
	for name, rounds := range map[string][]round{ // the last one is the last
		"nothing has changed":              {{0, time.Second}},
		"a quick round":                    {{40_000, time.Second}, {900, 200 * time.Millisecond}},
		"a backlog is copied in parts":     {{50_000, 2 * time.Second}, {50_000, 2 * time.Second}, {100, time.Millisecond}},
		"more is left than few":            {{9_000, time.Second}, {9_000, time.Second}, {10, 100 * time.Millisecond}},
		"each takes half as long":          {{400, 4 * time.Second}, {200, 2 * time.Second}, {100, time.Second}, {50, 500 * time.Millisecond}, {25, 240 * time.Millisecond}},
		"rounds take a while, all of them": {{800, 2 * time.Second}, {70, 600 * time.Millisecond}, {60, 500 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				done := 0
				c := copier.Copy{Session: new(copier.Session), Result: new(copier.Result), Options: copier.Options{Progress: func(copier.Step, int64) {}}, Operation: operation{round: func() (int, error) {
					if done == len(rounds) {
						return 0, errors.New("one round too many")
					}
					r := rounds[done]
					done++
					time.Sleep(r.took)
					return r.changes, nil
				}}}
				if err := c.CatchUp(t.Context()); err != nil || done != len(rounds) {
					t.Errorf("it ended after %d rounds of %d: %v", done, len(rounds), err)
				}
			})
		})
	}
}
