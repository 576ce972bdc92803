package config

import (
	"errors"
	"fmt"
	"regexp"
	"time"
)

// Webhooks configures webhooks: the calls to other backends.
type Webhooks struct {
	WebhooksAllowPrivate bool     `help:"Allow webhooks to call private networks and this machine, also over http without TLS."`
	WebhooksConfig       string   `help:"JSON file that declares webhooks: see webhooks.md. Processes with the role notifier apply it. The file is read again when it changes, and on SIGHUP." placeholder:"FILE"`
	WebhooksOrigin       string   `help:"DNS name of this installation. badged sends it when it asks endpoints for permission, and as the source of the events of webhooks." default:"badged"`
	RemindAfter          []string `help:"After this time, at least 1s, badged sends a reminder of an unread message to webhooks: CATEGORY=DURATION; * stands for all other categories; comma-separated. Default: no reminders." placeholder:"CATEGORY=DURATION"`
}

// MinRemindAfter is the shortest time after which webhooks may get a reminder of a message.
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

// RemindAfterByCategory returns, for each category, the time after which a reminder of an unread
// message is sent to webhooks. Its error reports all mistakes.
func (w *Webhooks) RemindAfterByCategory() (map[string]time.Duration, error) {
	return durationsByCategory("--remind-after (BADGED_REMIND_AFTER)", w.RemindAfter, func(after time.Duration) string {
		if after < MinRemindAfter {
			return "must be at least 1s"
		}
		return ""
	})
}
