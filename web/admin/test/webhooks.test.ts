import assert from "node:assert/strict";
import { test } from "node:test";
import type { Webhook } from "../src/server.js";
import { actionsOf, dueOf, failureOf, shownURL, toldOf, wordOf } from "../src/webhooks.js";

const works: Webhook = {
  name: "crm",
  url: "https://crm.example/hook?token=s3cret",
  events: ["badge.changed", "unread.reminder"],
  batch: 1,
  state: "active",
  due_events: 0,
  step: 0,
};
const fails: Webhook = {
  ...works,
  categories: ["chat"],
  batch: 100,
  rate: 60,
  due_events: 1,
  step: 4,
  next_call_at: "2026-11-21T10:12:54Z",
  failing_since: "2026-11-21T10:00:11Z",
  last_success_at: "2026-11-21T09:59:00Z",
  last_failure_at: "2026-11-21T10:02:54Z",
  last_error: "the endpoint answered 503 Service Unavailable",
};
const labels = (w: Webhook) => actionsOf(w).map(({ label, state }) => `${label}: ${state}`);

test("a webhook has the actions that its state allows", () => {
  assert.deepEqual(labels(works), ["Pause: paused"]);
  assert.deepEqual(labels(fails), ["Retry now: active", "Pause: paused"]);
  // One call failed, and the webhook is not on its ladder.
  const once: Webhook = { ...works, last_error: "no answer in time" };
  assert.deepEqual(labels(once), ["Retry now: active", "Pause: paused"]);
  assert.deepEqual(labels({ ...fails, state: "paused" }), ["Resume: active"]);
  assert.deepEqual(labels({ ...fails, state: "disabled" }), ["Enable: active"]);
});

test("a webhook says how it is", () => {
  assert.equal(wordOf(works), "active");
  assert.equal(wordOf(fails), "failing");
  assert.equal(wordOf({ ...fails, state: "paused" }), "paused");
  assert.equal(shownURL(works.url), "https://crm.example/hook?…");
  assert.equal(shownURL("https://crm.example/hook"), "https://crm.example/hook");
  assert.equal(toldOf(works), "badge.changed, unread.reminder · no call has succeeded yet");
  assert.match(
    toldOf(fails),
    /of chat · up to 100 in a call · at most 60 calls a minute · last success 2026/,
  );
});

test("a webhook says what waits, and why", () => {
  assert.equal(dueOf(works), "Nothing is due");
  assert.equal(dueOf(fails), "1 event due");
  assert.equal(dueOf({ ...fails, due_events: 10_000 }), "10,000 events or more due");
  assert.equal(dueOf({ ...fails, due_events: 2, state: "paused" }), "2 events wait");
  assert.match(
    failureOf(fails),
    /^the endpoint answered 503 Service Unavailable at 2026.*; failing since 2026.*, step 4 of the ladder; next call 2026/,
  );
  assert.doesNotMatch(failureOf({ ...fails, state: "paused" }), /next call/);
});
