package config

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Webhooks configures webhooks: the calls to other backends.
type Webhooks struct {
	WebhooksAllowPrivate bool     `help:"Let webhooks call private networks and this machine, also over plain http."`
	WebhooksConfig       string   `help:"JSON file that declares webhooks: see webhooks.md. Applied by processes with the role notifier; watched, and read again on SIGHUP." placeholder:"FILE"`
	WebhooksOrigin       string   `help:"DNS name of this installation, with which it asks endpoints for permission, and source of the events that it sends." default:"badged"`
	RemindAfter          []string `help:"After how long webhooks are reminded of unread messages, at least 1s: CATEGORY=DURATION; * stands for all other categories; comma-separated. Default: never." placeholder:"CATEGORY=DURATION"`
}

// MinRemindAfter is the shortest time after which webhooks may be reminded of unread messages.
const MinRemindAfter = time.Second

var originPattern = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?$`)

// Validate is called by kong.
func (w *Webhooks) Validate() error {
	var errs []error
	if !originPattern.MatchString(w.WebhooksOrigin) {
		errs = append(errs, fmt.Errorf("--webhooks-origin: %q is not a DNS name", w.WebhooksOrigin))
	}
	if _, err := w.RemindAfterByCategory(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// RemindAfterByCategory returns the time after which webhooks are reminded of unread messages,
// by category. Its error reports all mistakes.
func (w *Webhooks) RemindAfterByCategory() (map[string]time.Duration, error) {
	return durationsByCategory("--remind-after (BADGED_REMIND_AFTER)", w.RemindAfter, func(after time.Duration) string {
		if after < MinRemindAfter {
			return "must be at least 1s"
		}
		return ""
	})
}
