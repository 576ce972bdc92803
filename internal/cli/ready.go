package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// readyCmd is `badged ready`, the health check of images without curl.
type readyCmd struct {
	URL string `name:"url" help:"The server." default:"http://127.0.0.1:8080" placeholder:"URL"`
}

// readyTimeout is longer than the checks of a server take.
const readyTimeout = 5 * time.Second

// Run fails if the server cannot serve or cannot be reached.
func (c *readyCmd) Run(ctx context.Context, streams Streams) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(c.URL, "/")+"/readyz", nil)
	if err != nil {
		return fmt.Errorf("--url: %w", err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, 1<<16))
	if err != nil {
		return fmt.Errorf("read /readyz: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s: %s", c.URL, res.Status, strings.TrimSpace(string(body)))
	}
	_, err = fmt.Fprintf(streams.Out, "%s\n", strings.TrimSpace(string(body)))
	return err
}
