package broker

import (
	"errors"
	"net/url"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/base/resp"
)

// Redis returns a function that opens a client for the go-redis URL in `a`, without the parameters
// that Take and List have removed. blocking is the number of calls that may block at the same time,
// each on a separate connection. The client does not retry, because the code that uses the client
// retries.
func Redis(a *Address, blocking int) (func() redis.UniversalClient, error) {
	const others = 4
	u, err := url.Parse(a.Text)
	if err != nil {
		return nil, errors.New("the URL cannot be parsed")
	}
	u.RawQuery = a.Query.Encode()
	clear(a.Query) // go-redis reports unknown parameters itself
	return resp.Opener(u.String(), resp.Config{PoolSize: blocking + others})
}
