package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the system user that the server and its tools run as. nil means the user of this
// process. Only root can run a program as another user.
type account struct {
	name string // or the user's number
	*syscall.Credential
}

// accountFor selects the user to run the server as. If this process does not run as root, it
// selects the user of this process, otherwise the owner of the cluster in pgdata. If there is no
// cluster yet, or if root owns it (as after restoring a backup), it selects the user postgres or
// nobody. pgdata may be empty or missing.
func accountFor(pgdata string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	if info, err := os.Stat(pgdata); err == nil {
		if owner := info.Sys().(*syscall.Stat_t); owner.Uid != 0 {
			return &account{fmt.Sprint(owner.Uid), &syscall.Credential{Uid: owner.Uid, Gid: owner.Gid}}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
			gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
			return &account{name, &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}, errors.Join(uidErr, gidErr)
		}
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and this system has no user postgres or nobody: run as another user")
}

// command prepares a program to run as the account, in the directory dir. The account must have
// access to dir, because it may have none to the working directory of this process.
func (a *account) command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a program of the server
	cmd.Dir = dir
	// Remove the variables that change how PostgreSQL's programs work. Set TZ: without a named
	// time zone, initdb would search for the time zone of the machine.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PG") }), "LC_ALL=C", "TZ=UTC")
	if a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.Credential}
	}
	// Wait at most this long after the program has ended, since its child processes may outlive
	// it and keep its output open.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// own makes the account the owner of path and of everything below. If the account already owns
// path, own does nothing: the account may have created symbolic links below path, which this
// process must not follow as root.
func (a *account) own(path string) error {
	if a == nil {
		return nil
	}
	if info, err := os.Stat(path); err != nil || info.Sys().(*syscall.Stat_t).Uid == a.Uid {
		return err
	}
	return filepath.WalkDir(path, func(path string, _ fs.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(path, int(a.Uid), int(a.Gid))) //nolint:gosec // it was root's
	})
}
