// Package offline has the commands that need no database, and no server of badged.
//
// It does not know Postgres or HTTP.
package offline

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/badged/badged/internal/cli/terminal"
	"github.com/badged/badged/internal/server/auth"
	"github.com/badged/badged/internal/server/config"
	"github.com/badged/badged/internal/server/keyring"
)

// Keys is `badged keys`.
type Keys struct {
	Hash keysHashCmd `cmd:"" help:"Read a secret from standard input, and print its hash in the form of --keys-file, --publisher-keys and --admin-keys."`
	New  keysNewCmd  `cmd:"" help:"Generate a secret, and print the entry of its key for --keys-file. The secret itself is printed to standard error, only this time."`
}

type keysHashCmd struct{}

// minSecretBytes is the minimum length of a secret in bytes. A shorter secret may be guessed.
const minSecretBytes = 16

// maxSecretBytes is the maximum length of a secret in bytes, since clients send it in a header.
const maxSecretBytes = 32 << 10

// Run prints the hash.
func (keysHashCmd) Run(_ context.Context, streams terminal.Streams) error {
	b, err := io.ReadAll(io.LimitReader(streams.In, maxSecretBytes+1))
	if err != nil {
		return fmt.Errorf("read the secret: %w", err)
	}
	secret := strings.TrimRight(string(b), "\r\n")
	switch {
	case secret == "":
		return errors.New("standard input has no secret: openssl rand -hex 32 | tee secret | badged keys hash")
	case len(secret) < minSecretBytes:
		return fmt.Errorf("the secret has %d bytes and may be guessed: give at least %d", len(secret), minSecretBytes)
	case len(b) > maxSecretBytes || strings.TrimSpace(secret) != secret || strings.ContainsAny(secret, "\r\n\x00"):
		return fmt.Errorf("a secret is one line of at most %d bytes, without spaces at its ends: it is sent in a header", maxSecretBytes)
	}
	_, err = fmt.Fprintln(streams.Out, keyring.Hash(secret))
	return err
}

type keysNewCmd struct {
	Name string       `arg:"" help:"Name of the key, as metrics, logs and the audit trail show it."`
	Kind keyring.Kind `help:"Kind of the key: publisher, reader or admin." default:"publisher" enum:"publisher,reader,admin" env:"-"`
}

// secretPrefix lets programs that search for leaked secrets recognize secrets of badged.
const secretPrefix = "badged_"

// Validate implements kong's validation.
func (c *keysNewCmd) Validate() error {
	if !keyring.ValidName(c.Name) {
		return errors.New("the name must be letters, digits, dots, dashes and underscores, at most 63, and begin with a letter or digit")
	}
	return nil
}

// Run prints the entry and the secret.
func (c *keysNewCmd) Run(_ context.Context, streams terminal.Streams) error {
	random := make([]byte, 32)
	_, _ = rand.Read(random) // it never fails
	secret := secretPrefix + base64.RawURLEncoding.EncodeToString(random)
	if _, err := fmt.Fprintf(streams.Out, "  - name: %s\n    kind: %s\n    secret: %s\n", c.Name, c.Kind, keyring.Hash(secret)); err != nil {
		return err
	}
	_, err := fmt.Fprintf(streams.Err, "badged: the entry belongs below keys: in the keys file; the secret of %s is shown only now:\n%s\n", c.Name, secret)
	return err
}

// Token is `badged token`.
type Token struct {
	config.Tokens `embed:""`
	User          string        `arg:"" help:"The id of the user."`
	TTL           time.Duration `name:"ttl" help:"How long the token is valid." default:"1h"`
	Categories    []string      `name:"categories" placeholder:"NAME,..." help:"Restrict the token to conversations that these categories cover; comma-separated. Default: all conversations." env:"-"`
}

// Validate implements kong's validation.
func (c *Token) Validate() error {
	if len(c.JWTKeys) == 0 {
		return errors.New("--jwt-keys (BADGED_JWT_KEYS) is required: the token is signed with its first HS256 key")
	}
	if c.TTL <= 0 {
		return errors.New("--ttl must be more than 0s")
	}
	return nil
}

// Run prints the token.
func (c *Token) Run(_ context.Context, streams terminal.Streams) error {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: c.JWTKeys, Audience: c.JWTAudience, Issuer: c.JWTIssuer})
	if err != nil {
		return config.Mistake("--jwt-keys: %w", err)
	}
	token, err := tokens.Sign(c.User, c.TTL, time.Now(), c.Categories...)
	if err != nil {
		return &config.MistakeError{Err: err}
	}
	_, err = fmt.Fprintln(streams.Out, token)
	return err
}
