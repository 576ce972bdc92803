package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/projector/expiry"
)

// ExpireAfter returns after how long conversations expire, by category. It is
// empty by default. Its error reports all mistakes.
func (s *Server) ExpireAfter() (map[string]time.Duration, error) {
	limits := make(map[string]time.Duration, len(s.Expire))
	var errs []error
	for _, item := range s.Expire {
		category, after, err := parseExpire(item)
		if _, twice := limits[category]; err == nil && twice {
			err = fmt.Errorf("category %q appears twice", category)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("--expire (BADGED_EXPIRE): %w", err))
			continue
		}
		limits[category] = after
	}
	return limits, errors.Join(errs...)
}

func parseExpire(item string) (category string, after time.Duration, err error) {
	i := strings.LastIndexByte(item, '=') // a category may hold one
	if i < 0 {
		return "", 0, fmt.Errorf("%q: want CATEGORY=DURATION, such as chat=168h", item)
	}
	category = item[:i]
	if reason := events.CheckCategory(category); reason != "" {
		return "", 0, fmt.Errorf("%q: the category %s", item, reason)
	}
	if after, err = time.ParseDuration(item[i+1:]); err != nil {
		return "", 0, fmt.Errorf("%q: want a duration in hours after the %q, such as 168h for a week", item, "=")
	}
	if after < expiry.MinExpireAfter {
		return "", 0, fmt.Errorf("%q: must be at least 1h, since the time of deliveries is kept by the hour", item)
	}
	return category, after, nil
}
