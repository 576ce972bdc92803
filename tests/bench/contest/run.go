package contest

import (
	"context"
	"errors"
	"slices"
)

// Run is a piece of work, such as the turn of a side. As in a test, the first failed Check
// ends it, and it closes what it has opened.
type Run struct {
	// Name names the work in profiles.
	Name string

	ctx      context.Context
	cleanups []func(context.Context) error
}

// Context returns the context of the work.
func (r *Run) Context() context.Context { return r.ctx }

// Cleanup calls cleanup once the work has ended, also if it has failed. The last function is
// called first. Their context is never done.
func (r *Run) Cleanup(cleanup func(context.Context) error) { r.cleanups = append(r.cleanups, cleanup) }

// failure is the value of a panic that ends the work.
type failure struct{ error }

// Check ends the run if err is not nil. Only the goroutine of the run may call it.
func Check(err error) {
	if err != nil {
		panic(failure{err})
	}
}

// Must returns v, and ends the run if err is not nil.
func Must[T any](v T, err error) T {
	Check(err)
	return v
}

// Do runs work. It returns the error that ended the work, and those of cleanups.
func Do(ctx context.Context, name string, work func(*Run)) (err error) {
	r := &Run{Name: name, ctx: ctx}
	defer func() {
		for _, cleanup := range slices.Backward(r.cleanups) {
			err = errors.Join(err, cleanup(context.WithoutCancel(ctx)))
		}
	}()
	defer func() {
		switch p := recover().(type) {
		case nil:
		case failure:
			err = p.error
		default:
			panic(p)
		}
	}()
	work(r)
	return nil
}
