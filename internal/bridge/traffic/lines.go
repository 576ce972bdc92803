package traffic

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
)

// maxLineBytes is the maximum length of a line in bytes. Events that badged accepts are shorter.
const maxLineBytes = 8 << 20

// byteOrderMark is a character that some editors write at the start of a UTF-8 file. It must not
// become a part of the first user id.
const byteOrderMark = "\ufeff"

var errLineTooLong = fmt.Errorf("is longer than %d MiB", maxLineBytes>>20)

// Lines reads lines that end in LF. The last line may end without LF.
type Lines struct {
	r *bufio.Reader
	// Number is the number of the last line that was read, or of the line with the error. The first
	// line is 1.
	Number int
	long   []byte // a line that did not fit into r's buffer
}

// NewLines returns the lines of r.
func NewLines(r io.Reader) *Lines {
	return &Lines{r: bufio.NewReaderSize(r, 64<<10)}
}

// Next returns the next line, including its LF, or io.EOF after the last line. The line is
// valid until the next call.
func (l *Lines) Next() ([]byte, error) {
	l.Number++
	line, err := l.read()
	if err != nil {
		return nil, err
	}
	if l.Number == 1 {
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	return line, nil
}

func (l *Lines) read() ([]byte, error) {
	l.long = l.long[:0]
	for {
		part, err := l.r.ReadSlice('\n')
		if len(l.long)+len(part) > maxLineBytes {
			return nil, errLineTooLong
		}
		switch {
		case err == nil && len(l.long) == 0:
			return part, nil
		case errors.Is(err, bufio.ErrBufferFull):
			l.long = append(l.long, part...)
			continue
		case err != nil && !errors.Is(err, io.EOF):
			return nil, err
		}
		l.long = append(l.long, part...)
		if len(l.long) == 0 {
			return nil, io.EOF
		}
		return l.long, nil
	}
}
