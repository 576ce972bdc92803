package tests

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Runs the samples for the web in docs/push.md. The page registers its subscription. The service
// worker loads the SDK's worker, which sets the badge, ignores late pushes, clears the badge, and
// shows notifications, also in browsers without setAppBadge. The sample in Swift is compiled
// by .ci/swift.
func TestPushSamplesForTheWeb(t *testing.T) {
	page := readFile(t, "../docs/push.md")
	blocks := regexp.MustCompile("(?s)```js\n(.*?)```").FindAllSubmatch(page, -1)
	if len(blocks) != 2 {
		t.Fatalf("docs/push.md has %d samples in JavaScript, want the page and the worker", len(blocks))
	}
	badgedWorker := readFile(t, "../web/dist/sdk/badged-worker.js")
	dir := t.TempDir()
	for name, text := range map[string][]byte{"page.js": blocks[0][1], "worker.js": blocks[1][1], "badged-worker.js": badgedWorker, "run.mjs": []byte(runPushSamples)} {
		writeFile(t, filepath.Join(dir, name), text)
	}
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join(dir, "run.mjs"), dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// Runs the sample for Android in docs/push.md. It registers its token, cancels the alerts that a
// push names, ignores late pushes, and cancels all alerts when the number is 0.
func TestPushSampleForAndroid(t *testing.T) {
	program := java(t, "PushSample")
	cmd := exec.CommandContext(t.Context(), program[0], program[1:]...)
	cmd.Stdin = strings.NewReader(strings.Join([]string{
		`{"epoch":"e","version":2,"number":3,"retract":[{"tag":"lunch/41"},{"tag":"lunch/42"}]}`,
		`{"epoch":"e","version":1,"number":0}`,
		`{"epoch":"e","version":3,"number":0}`,
		`{"epoch":"f","version":1,"number":0}`,
	}, "\n"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	want := `device fcm android TOKEN
push
cancel lunch/41 0
cancel lunch/42 0
push
push
cancel all
push
cancel all
push of another sender
`
	if string(out) != want {
		t.Errorf("the sample did\n%swant\n%s", out, want)
	}
}

const runPushSamples = `
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
const dir = process.argv[2];
const AsyncFunction = (async () => {}).constructor;
const source = (name) => readFileSync(dir + "/" + name, "utf8");

const requests = [];
const subscription = { endpoint: "https://push.example/1", keys: { p256dh: "B", auth: "A" } };
await new AsyncFunction("navigator", "Notification", "fetch", "PUBLIC_KEY", "user", "deviceID", "token", source("page.js"))(
  { serviceWorker: { register: async (file) => {
    assert.equal(file, "/badged-worker.js");
    return { pushManager: { subscribe: async (options) => {
      assert.deepEqual(options, { userVisibleOnly: true, applicationServerKey: "KEY" });
      return subscription;
    } } };
  } } },
  { requestPermission: async () => "granted" },
  async (url, options) => { requests.push([url, options]); },
  "KEY", "ada", "browser", "TOKEN");
assert.equal(requests.length, 1);
const [url, { method, headers, body }] = requests[0];
assert.deepEqual([url, method, headers.Authorization], ["/v1/users/ada/devices/browser", "PUT", "Bearer TOKEN"]);
assert.deepEqual(JSON.parse(body), { platform: "webpush", app: "web", subscription });

const did = [];
const listeners = {};
const stored = {};
const self = {
  addEventListener: (type, f) => { listeners[type] = f; },
  registration: { showNotification: async (title, options) => { did.push(["show", title, options.body, options.tag, options.data.url]); } },
  navigator: { setAppBadge: async (n) => { did.push(["set", n]); }, clearAppBadge: async () => { did.push(["clear"]); } },
  caches: { open: async () => ({ match: async (key) => stored[key]?.clone(), put: async (key, value) => { stored[key] = value; } }) },
};
new Function("self", "importScripts", "clients", source("worker.js"))(
  self,
  (file) => new Function("self", source(file.slice(1)))(self),
  { openWindow: (url) => { did.push(["open", url]); } });
const push = async (content) => {
  let done;
  listeners.push({ data: { text: () => JSON.stringify(content) }, waitUntil: (promise) => { done = promise; } });
  await done;
};
const alert = { badged: { epoch: "e", version: 2, number: 3, conversation_id: "lunch", seq: 42, data: { url: "/lunch" } }, title: "Ben", body: "Pizza?" };
const shown = ["show", "Ben", "Pizza?", "lunch/42", "/lunch"];
await push(alert);
assert.deepEqual(did.splice(0).sort(), [["set", 3], shown]);
await push({ badged: { epoch: "e", version: 1, number: 9 } });
await push({ badged: { epoch: "e", version: 3, number: 0 } });
assert.deepEqual(did.splice(0), [["clear"]]);
self.navigator = {};
await push({ ...alert, badged: { ...alert.badged, version: 4 } });
listeners.notificationclick({ notification: { close() {}, data: { url: "/lunch" } } });
assert.deepEqual(did, [shown, ["open", "/lunch"]]);
`
