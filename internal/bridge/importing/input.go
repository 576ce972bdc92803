package importing

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/badged/badged/internal/bridge/traffic"
)

// input is a file that can be read more than once.
type input struct {
	name string // name in messages
	path string
	size int64 // in bytes as stored
	temp bool

	format   Format
	empty    EmptyUnread
	channels *channels // the channels of a Mattermost export; nil for other formats
	// leftOut counts, by reason, the rows that the last read of the file skipped.
	leftOut map[string]int64
}

// openInputs opens files as inputs. A file that can be read only once, such as standard input, is
// copied to a temporary file.
func openInputs(ctx context.Context, files []string, stdin io.Reader) (inputs []input, err error) {
	for _, file := range files {
		in, err := openInput(ctx, file, stdin)
		if err != nil {
			return nil, errors.Join(err, removeInputs(inputs))
		}
		inputs = append(inputs, in)
	}
	return inputs, nil
}

func openInput(ctx context.Context, file string, stdin io.Reader) (in input, err error) {
	src, err := traffic.OpenFile(ctx, file, stdin)
	if err != nil {
		return in, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	if info, err := os.Stat(file); file != "-" && err == nil && info.Mode().IsRegular() {
		return input{name: src.Name, path: file, size: src.Size}, nil
	}
	temp, err := os.CreateTemp("", "badged-import-")
	if err != nil {
		return in, fmt.Errorf("copy %s to a temporary file: %w", src.Name, err)
	}
	in = input{name: src.Name, path: temp.Name(), temp: true}
	in.size, err = io.Copy(temp, src)
	if err = errors.Join(err, temp.Close()); err != nil {
		return in, errors.Join(fmt.Errorf("copy %s to a temporary file: %w", src.Name, err), os.Remove(in.path))
	}
	return in, nil
}

// removeInputs removes the temporary files of inputs.
func removeInputs(inputs []input) error {
	var errs []error
	for _, in := range inputs {
		if in.temp {
			errs = append(errs, os.Remove(in.path))
		}
	}
	return errors.Join(errs...)
}

// each calls `f` with each row of the inputs, and `bad` with each bad line. done is the number of
// bytes that have been read so far from the files, which may be compressed. Errors name the file
// and the line.
func each(ctx context.Context, inputs []input, f func(source *input, row *Row, done int64) error, bad func(*traffic.LineError)) error {
	var before int64
	for i := range inputs {
		if err := eachOf(ctx, &inputs[i], before, f, bad); err != nil {
			return err
		}
		before += inputs[i].size
	}
	return nil
}

func eachOf(ctx context.Context, source *input, before int64, f func(source *input, row *Row, done int64) error, bad func(*traffic.LineError)) (err error) {
	src, err := traffic.OpenFile(ctx, source.path, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	rows := NewReader(src, source.format, source.channels)
	rows.Empty, source.leftOut = source.empty, rows.LeftOut
	for ctx.Err() == nil {
		row, err := rows.Next()
		var field *FieldError
		switch {
		case errors.Is(err, io.EOF):
			if rows.parse == nil || rows.Line() == 1 {
				return fmt.Errorf("read %s: there are no rows in it", source.name)
			}
			return nil
		case errors.As(err, &field):
			bad(&traffic.LineError{File: source.name, Line: rows.Line(), Err: field})
		case err != nil:
			return &traffic.LineError{File: source.name, Line: rows.Line(), Err: err}
		default:
			if err := f(source, &row, before+src.Offset()); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}
