package conformance

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// line is a line of JSON that the client prints. It has exactly one of Version, Refused, Done,
// Failed and Unsupported.
type line struct {
	// Version is set if the line contains a state.
	Version *int64 `json:"version"`
	state
	// Refused is the close code after which the client does not reconnect.
	Refused *int `json:"refused"`
	// Commands are numbered in order, from 1. Done is the number of a command that succeeded.
	// Failed is the number of a command that failed, and Code is its error code.
	Done   *int   `json:"done"`
	Failed *int   `json:"failed"`
	Code   string `json:"code"`
	// Unsupported names a feature that the client does not have.
	Unsupported string `json:"unsupported"`
}

// decodeLine decodes a line of the client.
func decodeLine(text []byte) (line, error) {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return l, fmt.Errorf("not a line of the adapter protocol: %w", err)
	}
	if l.Version == nil && l.Refused == nil && l.Done == nil && l.Failed == nil && l.Unsupported == "" {
		return l, errors.New("not a line of the adapter protocol: it has none of version, refused, done, failed, unsupported")
	}
	if l.Version != nil {
		l.state.Version = *l.Version
		l.state = l.normal()
	}
	return l, nil
}

// program is the client under test.
type program struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stderr tail
	// ended is closed when the program has ended and its last event was handled.
	ended chan struct{}
}

// exitDelay is how long to wait, after the program has ended, for the end of its output: a child
// process may still have the output open.
const exitDelay = time.Second

// start starts the client's program. The lines that it prints, and its end, are reported as events.
func start(ctx context.Context, command, environment []string, tell func(event)) (*program, error) {
	p := &program{
		cmd:   exec.CommandContext(ctx, command[0], command[1:]...), //nolint:gosec // the user names the program to run
		ended: make(chan struct{}),
	}
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stderr = &p.stderr
	p.cmd.WaitDelay = exitDelay
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("start the client: %w", err)
	}
	p.stdin = stdin
	out, in := io.Pipe()
	p.cmd.Stdout = in
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the client: %w", err)
	}
	read := make(chan struct{})
	go func() {
		defer close(read)
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, maxLine)
		for lines.Scan() {
			tell(event{kind: printed, text: bytes.Clone(lines.Bytes())})
		}
		_ = out.CloseWithError(lines.Err()) // if a line was too long, later writes of the program fail
	}()
	go func() {
		defer close(p.ended)
		err := p.cmd.Wait()
		_ = in.Close() // never fails
		<-read
		tell(event{kind: exited, err: err})
	}()
	return p, nil
}

// maxLine is the maximum length of a line in bytes. A state with 500 long names is shorter.
const maxLine = 1 << 20

// do writes a command of the user to the program.
func (p *program) do(command frame) error {
	_, err := p.stdin.Write(append(command.encode(), '\n'))
	return err
}

// tail is a writer that stores the last maxTail bytes. It is safe for concurrent use.
type tail struct {
	mu  sync.Mutex
	end []byte
}

// maxTail is the number of bytes of the client's standard error that a report contains.
const maxTail = 4096

// Write implements io.Writer.
func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.end = append(t.end, b...)
	t.end = t.end[max(0, len(t.end)-maxTail):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.ToValidUTF8(string(t.end), "?")
}
