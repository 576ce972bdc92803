package assistant

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// maxLine is the maximum size of a message of an assistant, in bytes.
const maxLine = 1 << 20

// lines reads the messages of an assistant, one per line, and passes them to the transport of the
// MCP library. This transport would end the session at a line that it cannot decode. So lines does
// not pass on such a line, and answers it with an error.
type lines struct {
	io.Closer
	in  *bufio.Reader
	out io.Writer
	// rest is the part of the current line that the transport has not read yet.
	rest []byte
}

func newLines(in io.ReadCloser, out io.Writer) *lines {
	return &lines{Closer: in, in: bufio.NewReaderSize(in, 64<<10), out: out}
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	for len(l.rest) == 0 {
		line, err := l.next()
		if err != nil {
			return 0, err
		}
		switch mistake := mistakeIn(line); {
		case mistake != nil:
			if err := l.refuse(mistake); err != nil {
				return 0, err
			}
		case len(line) > 0:
			l.rest = append(line, '\n')
		}
	}
	n := copy(p, l.rest)
	l.rest = l.rest[n:]
	return n, nil
}

// next returns the next line, without surrounding spaces. If the line is longer than maxLine,
// next returns only its beginning, with more than maxLine bytes.
func (l *lines) next() (line []byte, err error) {
	for {
		part, err := l.in.ReadSlice('\n')
		if len(line) <= maxLine {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil && len(line) == 0:
			return nil, err
		}
		return bytes.TrimSpace(line), nil // ignore err: if the input ended without a newline, the next call returns it
	}
}

// mistakeIn returns the mistake in a line, or nil.
func mistakeIn(line []byte) *jsonrpc.Error {
	if len(line) > maxLine {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("a message may have %d bytes", maxLine)}
	}
	if len(line) == 0 {
		return nil
	}
	if !json.Valid(line) {
		return &jsonrpc.Error{Code: jsonrpc.CodeParseError, Message: "the line is not JSON: send each message as one line"}
	}
	if _, err := jsonrpc.DecodeMessage(line); err != nil {
		return &jsonrpc.Error{Code: jsonrpc.CodeInvalidRequest, Message: fmt.Sprintf("the line is not a message of JSON-RPC 2.0: %v", err)}
	}
	return nil
}

// refuse answers a line with an error. The answer has no id, since the id of the request in the
// line is not known.
func (l *lines) refuse(mistake *jsonrpc.Error) error {
	answer, err := json.Marshal(struct {
		Version string         `json:"jsonrpc"`
		ID      *string        `json:"id"`
		Error   *jsonrpc.Error `json:"error"`
	}{"2.0", nil, mistake})
	if err != nil {
		return fmt.Errorf("encode an answer: %w", err)
	}
	_, err = l.out.Write(append(answer, '\n'))
	return err
}

// turns is a writer that several goroutines can use: it makes one call of Write at a time. Each
// call must write whole lines.
type turns struct {
	mu sync.Mutex
	io.WriteCloser
}

// Write implements io.Writer.
func (t *turns) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.WriteCloser.Write(p)
}
