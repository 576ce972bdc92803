//go:build unix

// Package leash starts programs that must not outlive this process: if this process is killed,
// the programs get a signal. The package does not know what the programs do.
package leash

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// leashed is a shell script. It starts a child in the background and then replaces itself with the
// program by exec. The child reads a line from descriptor 3, a pipe from this process. If the pipe
// ends without a line, this process was killed, and the child sends the signal to the program. The
// child closes the other files that it shares with the program: otherwise readers of the program's
// output would not see the end of the output.
const leashed = `signal=$1; shift
{ cd /; read -r _ || kill -"$signal" $$; } <&3 3<&- 4<&- 5<&- 6<&- >/dev/null 2>&1 &
exec "$@" 3<&-`

// Start starts cmd. If this process ends first, even if it is killed, the program gets the
// signal, such as "INT". cmd.ExtraFiles may have up to three files, which the program inherits as
// descriptors 4, 5 and 6. The program runs in its own session, so Ctrl-C in the terminal does not
// reach it. Call wait instead of cmd.Wait.
func Start(cmd *exec.Cmd, signal string) (wait func() error, err error) {
	end, leash, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer end.Close()
	cmd.Args = append([]string{"sh", "-c", leashed, "sh", signal, cmd.Path}, cmd.Args[1:]...)
	cmd.Path, cmd.ExtraFiles = "/bin/sh", append([]*os.File{end}, cmd.ExtraFiles...)
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Setsid = true
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, leash.Close())
	}
	return func() error {
		err := cmd.Wait()
		_, _ = leash.WriteString("\n") // no signal: another process may soon have the same id
		_ = leash.Close()
		return err
	}, nil
}
