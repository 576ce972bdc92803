package embedpg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that the server and its tools run as.
type account struct {
	name     string
	uid, gid uint32
	// other is set if that is not our own user, which requires root.
	other bool
}

// accountFor picks the user to run as: our own, or as root the owner of the
// cluster in pgdata or, if there is none yet, the user postgres or nobody.
// pgdata may be empty or missing.
func accountFor(pgdata string) (account, error) {
	owner, exists, err := ownerOf(pgdata)
	if err != nil {
		return account{}, err
	}
	self := uint32(os.Geteuid()) //nolint:gosec // a uid is never negative on Unix
	switch {
	case self != 0 && exists && owner != self:
		return account{}, fmt.Errorf("%w: %s belongs to user %s: run as that user, or choose another directory",
			ErrOwner, pgdata, userName(owner))
	case self != 0:
		return account{name: userName(self), uid: self, gid: uint32(os.Getegid())}, nil //nolint:gosec // as above
	case exists && owner == 0:
		return account{}, fmt.Errorf("%w: %s belongs to root, and PostgreSQL refuses to run as root: give it to another user with chown -R, or choose another directory",
			ErrOwner, pgdata)
	case exists:
		u, err := user.LookupId(strconv.FormatUint(uint64(owner), 10))
		if err != nil {
			return account{}, fmt.Errorf("%w: %s belongs to uid %d, which has no user on this machine: give it to one with chown -R, or choose another directory",
				ErrOwner, pgdata, owner)
		}
		return otherAccount(u)
	}
	for _, name := range []string{"postgres", "nobody"} {
		if u, err := user.Lookup(name); err == nil {
			return otherAccount(u)
		}
	}
	return account{}, errors.New("PostgreSQL refuses to run as root, and this system has no user postgres or nobody: run as another user")
}

func otherAccount(u *user.User) (account, error) {
	uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
	gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
	if err := errors.Join(uidErr, gidErr); err != nil {
		return account{}, fmt.Errorf("user %s: %w", u.Username, err)
	}
	return account{name: u.Username, uid: uint32(uid), gid: uint32(gid), other: true}, nil
}

// ownerOf returns the uid of path's owner, if path exists.
func ownerOf(path string) (uid uint32, exists bool, err error) {
	if path == "" {
		return 0, false, nil
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, false, nil
	case errors.Is(err, fs.ErrPermission):
		return 0, false, fmt.Errorf("%w: %w: run as its owner, or choose another directory", ErrOwner, err)
	case err != nil:
		return 0, false, fmt.Errorf("data directory: %w", err)
	}
	return info.Sys().(*syscall.Stat_t).Uid, true, nil
}

// userName returns a user's name for messages, or the number if it has none.
func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// command prepares a program to run as the account in dir, which the account
// must be able to enter: our own working directory may be closed to it.
func (a account) command(ctx context.Context, dir, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...) //nolint:gosec // a program that binaries.go found
	cmd.Dir = dir
	cmd.Env = environment(os.Environ())
	// A separate process group does not get the terminal's Ctrl-C: we stop the
	// server once its clients are done.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if a.other {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: a.uid, Gid: a.gid}
	}
	// Processes that it leaves behind may keep its output open.
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// environment removes variables that would change how PostgreSQL's programs
// work: PG…, and the user's language and time zone. A named time zone also
// spares initdb the search for the machine's.
func environment(env []string) []string {
	kept := []string{"LC_ALL=C", "TZ=UTC"}
	for _, e := range env {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "PG") || strings.HasPrefix(name, "LC_") ||
			name == "LANG" || name == "LANGUAGE" || name == "TZ" {
			continue
		}
		kept = append(kept, e)
	}
	return kept
}

// canEnter checks that the account may use dir as its working directory, by
// trying: access lists and security modules do not show in the mode.
func (a account) canEnter(ctx context.Context, dir string, bin binaries) error {
	if !a.other {
		return nil
	}
	if err := run(a.command(ctx, dir, bin.postgres(), "--version")); err != nil {
		return fmt.Errorf("enter %s as %s: %w", dir, a.name, err)
	}
	return nil
}

// own makes the account the owner of path.
func (a account) own(path string) error {
	if !a.other {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}
