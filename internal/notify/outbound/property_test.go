package outbound_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/devtest/foldtest"
	"github.com/badged/badged/internal/notify/outbound"
)

// screens are what phones show: the newest that they were told.
type screens map[string]screen

type screen struct {
	epoch           string
	version, number int64
}

// show applies a push, as an app does.
func (s screens) show(p outbound.DevicePush) {
	key := p.UserID + "/" + p.DeviceID
	if now, ok := s[key]; !ok || now.epoch != p.Badge.Epoch || now.version <= p.Badge.Version {
		s[key] = screen{p.Badge.Epoch, p.Badge.Version, p.Number}
	}
}

// send takes what is due for a moment, and reports it or not. What is not reported is
// as if the sender had been killed before or after it told the device.
func (b *bench) send(t *testing.T, seed uint64, shown screens) (unreported bool) {
	t.Helper()
	draw := rand.New(rand.NewPCG(seed, 0))
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	for range 3 {
		due, err := b.notifier.NextDevices(ctx, "chat", "fcm", 1+draw.IntN(5))
		if err != nil {
			return unreported // nothing is due, or it takes longer
		}
		for _, p := range due {
			switch draw.IntN(8) {
			case 0:
				b.notifier.DeviceRetry(p, 0, 0, "the vendor is down")
			case 1:
				b.notifier.DeviceHold(p, 0)
			case 2:
				unreported = true
			case 3:
				shown.show(p)
				unreported = true
			case 4:
				b.notifier.DeviceGone(p)
				delete(shown, p.UserID+"/"+p.DeviceID)
			default:
				shown.show(p)
				b.notifier.DeviceTold(p, 0)
			}
		}
	}
	return unreported
}

// Whatever happens in between, in the end every device shows the number of the
// tables.
func TestDevicesShowTheTables(t *testing.T) {
	b := newBench(t)
	users := []string{foldtest.User(0, 0), foldtest.User(0, 1), foldtest.User(1, 0), foldtest.User(2, 0)}
	shows := []string{outbound.ShowsTotal, outbound.ShowsMentions, outbound.ShowsCategory + "chat", outbound.ShowsConversations, outbound.ShowsConversationsOf + "chat"}
	shown, number := screens{}, 0
	rapid.Check(t, func(rt *rapid.T) {
		number++
		history := foldtest.DrawNamedRooms(rt, number, users)
		for i := range history {
			if posts := history[i].Type == events.MessageDelivered || history[i].Type == events.RoomPosted; posts && rapid.Bool().Draw(rt, "notifies") {
				history[i].Data.Notification.Body = fmt.Sprint("message ", i)
			}
		}
		unreported := false
		for rest := history; len(rest) > 0; {
			size := rapid.IntRange(1, len(rest)).Draw(rt, "transaction")
			b.Append(t, rest[:size]...)
			rest = rest[size:]
			b.hears.Store(nil)
			if rapid.Bool().Draw(rt, "hears") {
				b.hears.Store(b.notifier)
			}
			b.Fold(t)
			switch rapid.IntRange(0, 9).Draw(rt, "then") {
			case 0, 1, 2:
				r := phone(rapid.SampledFrom(users).Draw(rt, "user"), rapid.SampledFrom([]string{"phone", "tablet"}).Draw(rt, "device"))
				r.Fingerprint = []byte(r.UserID + r.DeviceID)
				r.Shows = rapid.SampledFrom(shows).Draw(rt, "shows")
				put(t, b.targets, r)
			case 3, 4, 5, 6:
				unreported = b.send(t, rapid.Uint64().Draw(rt, "outcomes"), shown) || unreported
			case 7: // another process takes over
				unreported = false
				b.start(t, nil)
			case 8: // Postgres ends sessions, of owners and within transactions
				b.Exec(t, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'badged noti%'`)
			}
		}
		if unreported { // a sender that forgets what it took has died
			b.start(t, nil)
		}
		for _, p := range b.drain(t, func(p outbound.DevicePush) { b.notifier.DeviceTold(p, 0) }) {
			shown.show(p)
		}
		for _, u := range users {
			devices, err := b.targets.Devices(t.Context(), u)
			if err != nil {
				rt.Fatal(err)
			}
			badge := b.Badge(t, u)
			for _, d := range devices {
				want := outbound.Number(&badge, d.Shows)
				if d.Told == nil || *d.Told != want || shown[u+"/"+d.DeviceID].number != want {
					rt.Errorf("%s of %s was told %v and shows %d, the tables have %d", d.DeviceID, u, d.Told, shown[u+"/"+d.DeviceID].number, want)
				}
			}
		}
		waiting := b.Lines(t, `SELECT format('%s %s %s', user_id, conversation_id, seq) FROM badged.alerts WHERE settled_at IS NULL`)
		if len(waiting) > 0 {
			rt.Errorf("alerts that nothing is due for: %q", slices.Compact(waiting))
		}
	})
}
