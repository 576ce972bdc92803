package broker

import (
	"cmp"
	"errors"
	"net/url"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/badged/badged/internal/resp"
)

// Redis returns what makes a client of what a URL of go-redis names; parameters that were
// taken are not go-redis's. This many calls may block at a time.
func Redis(a *Address, blocking int) (func() redis.UniversalClient, error) {
	u, err := url.Parse(a.Text)
	if err != nil {
		return nil, errors.New("it cannot be read")
	}
	u.RawQuery = a.Query.Encode()
	clear(a.Query) // go-redis refuses those that it does not know
	return redisOpener(u, blocking)
}

// redisOpener returns what makes a client of what a URL names. Clients do not connect at
// once. Each stream holds a connection while it waits.
func redisOpener(u *url.URL, streams int) (func() redis.UniversalClient, error) {
	// The worker repeats what fails.
	const others, resp2, oneDial, dialTimeout = 4, 2, 1, 5 * time.Second
	switch query := u.Query(); {
	case query.Has("master_name"):
		opt, err := redis.ParseFailoverURL(u.String())
		if err != nil {
			return nil, withoutURL(err)
		}
		opt.PoolSize, opt.Protocol, opt.DialerRetries, opt.ContextTimeoutEnabled = streams+others, resp2, oneDial, true
		opt.Dialer = resp.Dialer(cmp.Or(opt.DialTimeout, dialTimeout), opt.TLSConfig)
		return func() redis.UniversalClient { return redis.NewFailoverClient(opt) }, nil
	case query.Has("addr"):
		opt, err := redis.ParseClusterURL(u.String())
		if err != nil {
			return nil, withoutURL(err)
		}
		opt.PoolSize, opt.Protocol, opt.DialerRetries, opt.ContextTimeoutEnabled = streams+others, resp2, oneDial, true
		opt.Dialer = resp.Dialer(cmp.Or(opt.DialTimeout, dialTimeout), opt.TLSConfig)
		return func() redis.UniversalClient { return redis.NewClusterClient(opt) }, nil
	}
	opt, err := redis.ParseURL(u.String())
	if err != nil {
		return nil, withoutURL(err)
	}
	opt.PoolSize, opt.Protocol, opt.DialerRetries, opt.ContextTimeoutEnabled = streams+others, resp2, oneDial, true
	opt.Dialer = resp.Dialer(cmp.Or(opt.DialTimeout, dialTimeout), opt.TLSConfig)
	return func() redis.UniversalClient { return redis.NewClient(opt) }, nil
}

// withoutURL returns an error without the URL that one of net/url quotes.
func withoutURL(err error) error {
	var bad *url.Error
	if errors.As(err, &bad) {
		return errors.New("it cannot be read")
	}
	return err
}
