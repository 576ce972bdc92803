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

// account is the system user that runs the server and its tools. nil means the user of this
// process. Only root can run a program as another user.
type account struct {
	name string // the name of the user, or its number
	*syscall.Credential
}

// accountFor selects the user that runs the server. If this process does not run as root, it
// selects the user of this process. If this process runs as root, it selects the owner of the
// cluster in pgdata; if there is no cluster yet, or if root owns it (as after restoring a backup),
// it selects the user postgres or nobody. pgdata may be "" or may not exist.
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

// command returns a command that runs a program as the account, in the directory dir. Pass a
// directory to which the account has access: the account may have no access to the working
// directory of this process.
func (a *account) command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a program of the server
	cmd.Dir = dir
	// Remove the environment variables that configure PostgreSQL's programs. Set TZ: otherwise
	// initdb would search for the time zone of the machine. Let glibc use huge pages: otherwise a
	// new session of a server on a virtual machine spends up to a sixth of its processor time in
	// page faults of its heap.
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(e string) bool { return strings.HasPrefix(e, "PG") }),
		"LC_ALL=C", "TZ=UTC", "GLIBC_TUNABLES=glibc.malloc.hugetlb=1")
	if a != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: a.Credential}
	}
	// Child processes may outlive the program and hold its output open: limit how long Wait waits
	// for the end of the output after the program has ended.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// chown makes the account the owner of path and of all files below path. If the account already
// owns path, chown changes nothing: the account may have created symbolic links below path, and
// this process must not follow them as root.
func (a *account) chown(path string) error {
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
