package broker

import (
	"errors"
	"net/url"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/base/resp"
)

// Redis returns a function that makes a client for a go-redis URL, without the parameters that
// were already removed. blocking is the number of calls that may block at the same time; each
// uses its own connection. The client does not retry, since the worker does.
func Redis(a *Address, blocking int) (func() redis.UniversalClient, error) {
	const others = 4
	u, err := url.Parse(a.Text)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	u.RawQuery = a.Query.Encode()
	clear(a.Query) // all parameters count as known, because go-redis refuses unknown ones
	return resp.Opener(u.String(), resp.Config{PoolSize: blocking + others})
}
