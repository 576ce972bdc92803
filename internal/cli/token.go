package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/badged/badged/internal/auth"
	"github.com/badged/badged/internal/config"
)

// tokenCmd is `badged token`.
type tokenCmd struct {
	config.Tokens `embed:""`
	User          string        `arg:"" help:"Id of the user."`
	TTL           time.Duration `name:"ttl" help:"How long the token is valid." default:"1h"`
	Categories    []string      `name:"categories" placeholder:"NAME,..." help:"Restrict the token to conversations of these categories, comma-separated. Default: all."`
}

// Validate implements kong's validation.
func (c *tokenCmd) Validate() error {
	if len(c.JWTKeys) == 0 {
		return errors.New("--jwt-keys (BADGED_JWT_KEYS) is required: the token is signed with its first HS256 key")
	}
	if c.TTL <= 0 {
		return errors.New("--ttl must be more than 0s")
	}
	return nil
}

// Run prints the token.
func (c *tokenCmd) Run(_ context.Context, streams Streams) error {
	tokens, err := auth.NewTokens(auth.TokenConfig{Keys: c.JWTKeys, Audience: c.JWTAudience, Issuer: c.JWTIssuer})
	if err != nil {
		return fmt.Errorf("--jwt-keys: %w", err)
	}
	token, err := tokens.Sign(c.User, c.TTL, time.Now(), c.Categories...)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(streams.Out, token)
	return err
}

func printJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
