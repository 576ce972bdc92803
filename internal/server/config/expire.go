package config

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/user/expiry"
)

// ExpireAfter returns, for each category, the time after which conversations expire. By default no
// conversation expires. Its error reports all mistakes.
func (s *Server) ExpireAfter() (map[string]time.Duration, error) {
	return durationsByCategory("--expire (BADGED_EXPIRE)", s.Expire, func(after time.Duration) string {
		if after < expiry.MinExpireAfter {
			return "must be at least 1h, since the time of deliveries is kept by the hour"
		}
		return ""
	})
}

// durationsByCategory parses the items of a setting, which have the form CATEGORY=DURATION. `check`
// returns why a duration is invalid, or "".
func durationsByCategory(setting string, items []string, check func(time.Duration) string) (map[string]time.Duration, error) {
	all := make(map[string]time.Duration, len(items))
	var errs []error
	for _, item := range items {
		category, d, err := durationOfCategory(item, check)
		if _, twice := all[category]; err == nil && twice {
			err = fmt.Errorf("category %q appears twice", category)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", setting, err))
			continue
		}
		all[category] = d
	}
	return all, errors.Join(errs...)
}

func durationOfCategory(item string, check func(time.Duration) string) (category string, d time.Duration, err error) {
	i := strings.LastIndexByte(item, '=') // the last =, since a category may contain one
	if i < 0 {
		return "", 0, fmt.Errorf("%q: want CATEGORY=DURATION, such as chat=168h", item)
	}
	category = item[:i]
	if reason := events.CheckCategory(category); reason != "" {
		return "", 0, fmt.Errorf("%q: the category %s", item, reason)
	}
	if d, err = time.ParseDuration(item[i+1:]); err != nil {
		return "", 0, fmt.Errorf("%q: want a duration in hours after the %q, such as 168h for a week", item, "=")
	}
	if reason := check(d); reason != "" {
		return "", 0, fmt.Errorf("%q: %s", item, reason)
	}
	return category, d, nil
}
