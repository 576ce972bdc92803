package archive

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"filippo.io/age"
)

// sealedPrefix begins each encrypted object.
const sealedPrefix = "age-encryption.org/"

// Keys encrypt and decrypt archives with age (age-encryption.org).
type Keys struct {
	identities []age.Identity
	recipient  age.Recipient
	// names are the public keys.
	names []string
}

// ParseKeys reads keys in the format of age-keygen: one line AGE-SECRET-KEY-1… per key, and
// comments. The first key encrypts; every key is tried for decryption.
func ParseKeys(r io.Reader) (*Keys, error) {
	identities, err := age.ParseIdentities(r)
	if err != nil {
		return nil, fmt.Errorf("read keys of archives: %w", err)
	}
	k := &Keys{identities: identities}
	for i, identity := range identities {
		x, ok := identity.(*age.X25519Identity)
		if !ok {
			return nil, fmt.Errorf("read keys of archives: key %d is not an AGE-SECRET-KEY-1", i+1)
		}
		if i == 0 {
			k.recipient = x.Recipient()
		}
		k.names = append(k.names, x.Recipient().String())
	}
	return k, nil
}

// Sealed is a Store that encrypts the objects of another Store. It also reads unencrypted objects,
// so that an unencrypted archive can be continued with encryption.
type Sealed struct {
	Store
	Keys *Keys
}

// Open implements Store.
func (s Sealed) Open(ctx context.Context, name string) (io.ReadCloser, error) {
	r, err := s.Store.Open(ctx, name)
	if err != nil {
		return nil, err
	}
	plain, err := s.decrypt(name, r)
	if err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{plain, r}, nil
}

// decrypt returns the plain content of an object.
func (s Sealed) decrypt(name string, r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if begin, err := buffered.Peek(len(sealedPrefix)); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	} else if string(begin) != sealedPrefix {
		return buffered, nil
	}
	plain, err := age.Decrypt(buffered, s.Keys.identities...)
	var none *age.NoIdentityMatchError
	if errors.As(err, &none) {
		return nil, fmt.Errorf("%s is encrypted with another key than %s: add the one that was the first when it was written", s.Path(name), strings.Join(s.Keys.names, ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("decrypt %s: %w", s.Path(name), err)
	}
	return plain, nil
}

// Create implements Store.
func (s Sealed) Create(ctx context.Context, name string) (Writer, error) {
	w, err := s.Store.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	sealed, err := age.Encrypt(w, s.Keys.recipient)
	if err != nil {
		w.Abort()
		return nil, err
	}
	return sealedWriter{sealed, w}, nil
}

// sealedWriter encrypts into another writer.
type sealedWriter struct {
	io.WriteCloser
	to Writer
}

func (w sealedWriter) Commit() error {
	if err := w.Close(); err != nil {
		w.to.Abort()
		return err
	}
	return w.to.Commit()
}

func (w sealedWriter) Abort() { w.to.Abort() }

// Load implements Store.
func (s Sealed) Load(ctx context.Context, name string) (content []byte, version string, err error) {
	content, version, err = s.Store.Load(ctx, name)
	if err != nil {
		return nil, "", err
	}
	plain, err := s.decrypt(name, bytes.NewReader(content))
	if err == nil {
		content, err = io.ReadAll(plain)
	}
	return content, version, err
}

// Save implements Store.
func (s Sealed) Save(ctx context.Context, name string, content []byte, version string) (string, error) {
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, s.Keys.recipient)
	if err == nil {
		_, err = w.Write(content)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return "", fmt.Errorf("encrypt %s: %w", s.Path(name), err)
	}
	return s.Store.Save(ctx, name, sealed.Bytes(), version)
}

// Reseal encrypts the files and the manifest of an archive with the first of store.Keys, unless
// they are encrypted with this key already. It first calls `check`, and fails if `check` fails. It
// calls `resealed` with each file that it has encrypted. It replaces each object atomically. The
// decrypted content and the checksum stay the same, so readers and databases are not affected.
// After an interruption the next call encrypts the remaining objects. Reseal fails with ErrInUse
// while another process writes to the archive.
func Reseal(ctx context.Context, store Sealed, check func(*Archive) error, resealed func(f File)) error {
	a, err := Continue(ctx, store)
	if err != nil {
		return err
	}
	defer a.Close()
	if err := check(a); err != nil {
		return err
	}
	for _, f := range a.manifest.Files {
		if f.GivenUp != nil {
			continue
		}
		switch is, err := store.isFirst(ctx, f.Name); {
		case err != nil:
			return fmt.Errorf("read archive file %s: %w", a.path(f), err)
		case is:
			continue
		}
		if err := a.copyFile(ctx, a, f); err != nil {
			return err
		}
		resealed(f)
	}
	if is, err := store.isFirst(ctx, manifestName); err != nil || is {
		return err
	}
	return a.save(ctx) // the manifest comes last, so that the former key can open it after an interruption
}

// isFirst reports whether an object is encrypted with the first key.
func (s Sealed) isFirst(ctx context.Context, name string) (bool, error) {
	r, err := s.Store.Open(ctx, name)
	if err != nil {
		return false, err
	}
	defer r.Close()
	_, err = age.Decrypt(r, s.Keys.identities[0])
	if ctx.Err() != nil {
		return false, err
	}
	return err == nil, nil // copyFile reports any other error
}

// copyFile copies the file f from the archive `from` to the archive a. If both are the same
// archive, it replaces the file. It fails if the content does not match the checksum of f.
func (a *Archive) copyFile(ctx context.Context, from *Archive, f File) error {
	r, err := from.store.Open(ctx, f.Name)
	if err != nil {
		return fmt.Errorf("read archive file %s: %w", from.path(f), err)
	}
	defer r.Close()
	w, err := a.store.Create(ctx, f.Name)
	if err != nil {
		return fmt.Errorf("write archive file %s: %w", a.path(f), err)
	}
	sum := sha256.New()
	_, err = io.Copy(io.MultiWriter(w, sum), r)
	if err == nil && hex.EncodeToString(sum.Sum(nil)) != f.SHA256 {
		err = &FileError{from.path(f), "is damaged: restore it from a copy"}
	}
	if err != nil {
		w.Abort()
		return fmt.Errorf("copy archive file %s: %w", from.path(f), err)
	}
	if err := w.Commit(); err != nil {
		return fmt.Errorf("write archive file %s: %w", a.path(f), err)
	}
	return nil
}
