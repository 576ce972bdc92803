package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/badged/badged/events"
	"github.com/badged/badged/internal/base/describe"
	"github.com/badged/badged/internal/base/limit"
	"github.com/badged/badged/internal/notify/outbound"
)

// Devices stores the registrations of devices that get pushes.
type Devices interface {
	// Put registers a device, or replaces its registration. The device token in r is in plain text;
	// Put encrypts it. created is true if the device was not registered before. Put fails with a
	// *DeviceError or outbound.ErrTooManyDevices.
	Put(ctx context.Context, r outbound.Registration) (created bool, err error)
	// Device returns a registered device. Device and Delete fail with outbound.ErrNotFound if the
	// user has no such device.
	Device(ctx context.Context, userID, deviceID string) (Device, error)
	Devices(ctx context.Context, userID string) ([]Device, error)
	Delete(ctx context.Context, userID, deviceID string) error
}

// DeviceError is a mistake in one field of a registration. Its text is safe to show.
type DeviceError struct{ Field, Message string }

func (e *DeviceError) Error() string { return e.Field + " " + e.Message }

type deviceBody struct {
	Platform     string          `json:"platform" enum:"apns,fcm,webpush,unifiedpush" doc:"The service that delivers pushes to the device."`
	App          string          `json:"app" minLength:"1" maxLength:"64" doc:"The app, as the server's push configuration names it."`
	Environment  string          `json:"environment,omitempty" enum:"production,sandbox" doc:"Only for APNs: the environment of the token. Builds from Xcode use sandbox. Default: production."`
	Token        string          `json:"token,omitempty" doc:"The token that APNs or FCM gave the app."`
	Subscription json.RawMessage `json:"subscription,omitempty" doc:"The subscription that the browser, or the distributor of UnifiedPush, gave the app."`
	Shows        string          `json:"shows,omitempty" doc:"The number that pushes show on the icon: total, mentions, category:NAME (the total of a category), conversations (the number of conversations that add to the total), or conversations:NAME (the same of a category). Default: total."`
}

// Device is a registered device in the form for clients.
type Device struct {
	DeviceID     string     `json:"device_id" doc:"The id of the device."`
	Platform     string     `json:"platform" enum:"apns,fcm,webpush,unifiedpush" doc:"The service that delivers pushes to the device."`
	App          string     `json:"app" doc:"The app."`
	Environment  string     `json:"environment" enum:"production,sandbox" doc:"The environment of APNs."`
	Shows        string     `json:"shows" doc:"The number that pushes show on the icon: total, mentions, category:NAME (the total of a category), conversations (the number of conversations that add to the total), or conversations:NAME (the same of a category)."`
	Token        string     `json:"token" doc:"The last characters of the token, or the host of the subscription, by which people can distinguish devices."`
	RegisteredAt time.Time  `json:"registered_at" doc:"When the device was last registered."`
	Number       *int64     `json:"number,omitempty" doc:"The number in the last push that was sent to the device; absent if none was sent yet."`
	ToldAt       *time.Time `json:"told_at,omitempty" doc:"When this push was sent; absent if none was sent yet."`
	DueAt        *time.Time `json:"due_at,omitempty" doc:"When the next push is due; absent if none is due."`
	Failures     int        `json:"failures" minimum:"0" doc:"The number of pushes that failed since the last push that was sent."`
	LastError    *string    `json:"last_error,omitempty" doc:"The vendor's reason for not accepting the last push that failed; Unreachable if the vendor did not answer."`
	LastErrorAt  *time.Time `json:"last_error_at,omitempty" doc:"When this push failed."`
}

// devicesAnswer lists the devices of a user.
type devicesAnswer struct {
	Devices []Device `json:"devices" doc:"The devices, by id."`
}

func (a *API) putDevice(w http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	registration, err := a.registrationOf(w, r)
	if err != nil {
		return answer{}, err
	}
	ctx := r.Context()
	created, err := within(ctx, a, func(bool) (bool, error) { return a.cfg.Devices.Put(ctx, registration) })
	var wrong *DeviceError
	switch {
	case errors.As(err, &wrong):
		return answer{}, &problem{Status: http.StatusBadRequest, Detail: wrong.Error()}
	case errors.Is(err, outbound.ErrTooManyDevices):
		return answer{}, &problem{Status: http.StatusConflict, Detail: outbound.ErrTooManyDevices.Error()}
	case err != nil:
		return answer{}, err
	}
	device, err := a.device(r, registration.DeviceID)
	if err != nil {
		return answer{}, deviceProblem(err)
	}
	status := http.StatusOK
	if created {
		status = http.StatusCreated
	}
	return answer{status, device}, nil
}

// registrationOf reads and checks the registration in a request.
func (a *API) registrationOf(w http.ResponseWriter, r *http.Request) (d outbound.Registration, err error) {
	d.UserID = r.PathValue("user")
	if d.DeviceID, err = deviceOf(r); err != nil {
		return d, err
	}
	text, err := a.readBody(w, r, maxSmallBody)
	if err != nil {
		return d, err
	}
	var body deviceBody
	if err := decodeStrict(text, &body); err != nil {
		return d, &problem{Status: http.StatusBadRequest, Detail: err.Error()}
	}
	if string(body.Subscription) == "null" {
		body.Subscription = nil // null counts as absent
	}
	d.Platform, d.App, d.Environment, d.Shows = body.Platform, body.App, body.Environment, body.Shows
	if d.Environment == "" {
		d.Environment = "production"
	}
	if d.Shows == "" {
		d.Shows = outbound.ShowsTotal
	}
	category, named := strings.CutPrefix(d.Shows, outbound.ShowsCategory)
	if !named {
		category, named = strings.CutPrefix(d.Shows, outbound.ShowsConversationsOf)
	}
	if named {
		if reason := events.CheckCategory(category); reason != "" {
			return d, &problem{Status: http.StatusBadRequest, Detail: "shows names a category that " + reason}
		}
	} else if d.Shows != outbound.ShowsTotal && d.Shows != outbound.ShowsMentions && d.Shows != outbound.ShowsConversations {
		return d, &problem{Status: http.StatusBadRequest, Detail: "shows must be total, mentions, category:NAME, conversations, or conversations:NAME"}
	}
	switch {
	case (body.Token == "") == (body.Subscription == nil):
		return d, &problem{Status: http.StatusBadRequest, Detail: "give token (apns, fcm) or subscription (webpush, unifiedpush)"}
	case body.Token != "":
		d.Token = []byte(body.Token)
	default:
		var compact bytes.Buffer
		if err := json.Compact(&compact, body.Subscription); err != nil {
			return d, &problem{Status: http.StatusBadRequest, Detail: "subscription must be a JSON object"}
		}
		d.Token = compact.Bytes()
	}
	if isSubscription := body.Subscription != nil; isSubscription != (d.Platform == "webpush" || d.Platform == "unifiedpush") {
		return d, &problem{Status: http.StatusBadRequest, Detail: "apns and fcm have a token, webpush and unifiedpush have a subscription"}
	}
	return d, nil
}

// deviceOf returns the device id in the path of a request.
func deviceOf(r *http.Request) (string, error) {
	id := r.PathValue("device")
	if reason := events.CheckID(id); reason != "" {
		return "", &problem{Status: http.StatusBadRequest, Detail: "device id " + reason}
	}
	if strings.TrimSpace(id) == "" {
		return "", &problem{Status: http.StatusBadRequest, Detail: "device id must not be blank"}
	}
	return id, nil
}

// device reads a device of the user in the path.
func (a *API) device(r *http.Request, id string) (Device, error) {
	ctx := r.Context()
	return within(ctx, a, func(bool) (Device, error) { return a.cfg.Devices.Device(ctx, r.PathValue("user"), id) })
}

func (a *API) getDevice(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	id, err := deviceOf(r)
	if err != nil {
		return answer{}, err
	}
	device, err := a.device(r, id)
	return answer{body: device}, deviceProblem(err)
}

func (a *API) getDevices(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	ctx := r.Context()
	devices, err := within(ctx, a, func(bool) ([]Device, error) { return a.cfg.Devices.Devices(ctx, r.PathValue("user")) })
	return answer{body: devicesAnswer{notNil(devices)}}, err
}

// deleteDevice deletes the registration of a device, which then gets no more pushes.
func (a *API) deleteDevice(_ http.ResponseWriter, r *http.Request, _ grant) (answer, error) {
	id, err := deviceOf(r)
	if ctx := r.Context(); err == nil {
		_, err = within(ctx, a, func(bool) (any, error) { return nil, a.cfg.Devices.Delete(ctx, r.PathValue("user"), id) })
	}
	return answer{status: http.StatusNoContent}, deviceProblem(err)
}

func deviceProblem(err error) error {
	if errors.Is(err, outbound.ErrNotFound) {
		return &problem{Status: http.StatusNotFound, Detail: "the user has no such device"}
	}
	return err
}

func (a *API) deviceRoutes() []describe.Route {
	const (
		iPhone = `{"platform":"apns","app":"ios","token":"00fc13adff785122b4ad28809a3420982341241421348097878e577c991de8f0"}`
		device = `{"device_id":"phone","platform":"apns","app":"ios","environment":"production","shows":"total","token":"…e8f0","registered_at":"2026-03-02T09:30:00Z","number":3,"told_at":"2026-03-02T09:31:12Z","failures":0}`
		badApp = `{"type":"urn:badged:problem","title":"Bad Request","status":400,"detail":"app \"ipad\" is not in the push configuration of the server"}`
		none   = `{"type":"urn:badged:problem","title":"Not Found","status":404,"detail":"the user has no such device"}`
		full   = `{"type":"urn:badged:problem","title":"Conflict","status":409,"detail":"the user has 100 devices already: delete those that are not in use"}`
		others = `{"type":"urn:badged:problem","title":"Forbidden","status":403,"detail":"a user's token is for that user only"}`
	)
	id := describe.Param{In: "path", Name: "device", Doc: "The id of the device, which the app creates once and stores.", Model: idSchema(), Example: "phone"}
	forbidden := describe.Problem(http.StatusForbidden, problem{}, "The token belongs to another user.", others)
	invalid := describe.Problem(http.StatusBadRequest, problem{}, "A parameter is unknown or invalid.", "")
	notFound := describe.Problem(http.StatusNotFound, problem{}, "The user has no such device.", none)
	limited := a.limited(fmt.Sprintf("each process accepts bursts of %d requests for devices of a user, and %d such requests per second", deviceRequests*limit.BurstSeconds, deviceRequests))
	return []describe.Route{
		a.forOwners(a.putDevice, describe.Route{
			Method: http.MethodPut, Path: "/v1/users/{user}/devices/{device}",
			Name: "putDevice", Group: GroupDevices, Summary: "Register a device for pushes",
			Doc:    "Register the device each time the app starts, and when its token changes. badged sends a push with the number to a new or changed device at once. A token belongs to one device: registering it deletes other devices with the same token. A user has at most 100 devices.",
			Params: []describe.Param{userParam(), id},
			Body:   []describe.Content{{MediaType: "application/json", Model: deviceBody{}, Example: iPhone}},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The device was registered already, and was updated.", Content: describe.JSON(Device{}, device)},
				describe.Answer{Status: http.StatusCreated, Doc: "The device was not registered before.", Content: describe.JSON(Device{}, device)},
				describe.Problem(http.StatusBadRequest, problem{}, "The body or a parameter is invalid; `detail` says which.", badApp),
				forbidden,
				describe.Problem(http.StatusRequestTimeout, problem{}, tooSlow, ""),
				describe.Problem(http.StatusConflict, problem{}, "The user has 100 devices already.", full),
				tooLarge(maxSmallBody),
				describe.Problem(http.StatusUnsupportedMediaType, problem{}, encoded, ""),
				limited,
			),
		}),
		a.forOwners(a.getDevice, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/devices/{device}",
			Name: "getDevice", Group: GroupDevices, Summary: "Read a device",
			Params: []describe.Param{userParam(), id},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The id of the device.", Content: describe.JSON(Device{}, device)},
				invalid, forbidden, notFound, limited,
			),
		}),
		a.forOwners(a.getDevices, describe.Route{
			Method: http.MethodGet, Path: "/v1/users/{user}/devices",
			Name: "getDevices", Group: GroupDevices, Summary: "List the devices of a user",
			Params: []describe.Param{userParam()},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The devices.", Content: describe.JSON(devicesAnswer{}, `{"devices":[`+device+`]}`)},
				invalid, forbidden, limited,
			),
		}),
		a.restrict(operating, nil, a.getDevices, describe.Route{
			Method: http.MethodGet, Path: "/admin/v1/users/{user}/devices",
			Name: "getDevicesForAdmin", Group: GroupAdmin, Summary: "List the devices of a user",
			Doc:    "The same list as for the user, on the listener for operators. It shows which number was last pushed to each device and when, and why the last push failed.",
			Params: []describe.Param{userParam()},
			Answers: failures(
				describe.Answer{Status: http.StatusOK, Doc: "The devices.", Content: describe.JSON(devicesAnswer{}, `{"devices":[`+device+`]}`)},
				invalid,
			),
		}),
		a.forOwners(a.deleteDevice, describe.Route{
			Method: http.MethodDelete, Path: "/v1/users/{user}/devices/{device}",
			Name: "deleteDevice", Group: GroupDevices, Summary: "End pushes to a device",
			Doc:    "When a user signs out, delete the device with the user's token.",
			Params: []describe.Param{userParam(), id},
			Answers: failures(
				describe.Answer{Status: http.StatusNoContent, Doc: "The device and its due pushes are deleted."},
				invalid, forbidden, notFound, limited,
			),
		}),
	}
}
