package assistant

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// Operator retries and discards dead letters through the admin API of a running server. The
// server checks the admin key, records the name of the key in the audit trail, and wakes projectors.
type Operator struct {
	server string
	key    string
	client *http.Client
}

// operatorTimeout limits a request. It is longer than the time that the server permits an action.
const operatorTimeout = 40 * time.Second

// maxAnswer is the maximum number of bytes of an answer that are read.
const maxAnswer = 16 << 20

// NewOperator returns an operator that uses an admin key at the URL of a server.
func NewOperator(server, key string) (*Operator, error) {
	u, err := url.Parse(server)
	if err != nil || (u.Scheme != "http" && u.Scheme != "https") || u.Host == "" {
		return nil, errors.New("the URL of the server must be one such as https://badged.example")
	}
	// Do not follow redirects, since they would send the key to another server.
	client := &http.Client{Timeout: operatorTimeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return &Operator{u.JoinPath("admin/v1/deadletters").String(), key, client}, nil
}

// Retry publishes a dead letter again.
func (o *Operator) Retry(ctx context.Context, id int64) error {
	_, err := o.send(ctx, http.MethodPost, fmt.Sprintf("%s/%d/retry", o.server, id))
	if err != nil {
		return fmt.Errorf("retry dead letter %d: %w", id, err)
	}
	return nil
}

// Discard deletes a dead letter and returns it.
func (o *Operator) Discard(ctx context.Context, id int64) (json.RawMessage, error) {
	letter, err := o.send(ctx, http.MethodDelete, fmt.Sprintf("%s/%d", o.server, id))
	if err != nil {
		return nil, fmt.Errorf("discard dead letter %d: %w", id, err)
	}
	return letter, nil
}

func (o *Operator) send(ctx context.Context, method, route string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, route, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+o.key)
	res, err := o.client.Do(r)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	if err != nil {
		return nil, fmt.Errorf("read the answer of the server: %w", err)
	}
	if res.StatusCode/100 == 2 {
		return body, nil
	}
	var problem struct{ Detail string }
	if json.Unmarshal(body, &problem) != nil || problem.Detail == "" {
		problem.Detail = "is this the URL of a server with the role api and admin keys?"
	}
	return nil, fmt.Errorf("the server answers %s: %s", res.Status, problem.Detail)
}

// Close closes the connections to the server.
func (o *Operator) Close() { o.client.CloseIdleConnections() }
