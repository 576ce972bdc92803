import assert from "node:assert/strict";
import { test } from "node:test";
import { failure, next, told } from "../src/devices.js";
import type { Device } from "../src/server.js";

const device: Device = {
  device_id: "phone",
  platform: "apns",
  app: "ios",
  environment: "production",
  shows: "total",
  token: "…e8f0",
  registered_at: "2026-03-02T09:30:00Z",
  failures: 0,
};

test("a device says what it was told, what comes next and why not", () => {
  assert.equal(told(device), "nothing yet");
  assert.match(
    told({ ...device, number: 1200, told_at: "2026-03-02T09:31:00Z" }),
    /^1,200 at 2026/,
  );
  assert.equal(next(device), "shows what it should");
  assert.equal(next({ ...device, due_at: "2026-03-02T09:31:00Z" }), "now");
  assert.match(next({ ...device, due_at: "9026-03-02T09:31:00Z" }), /^9026/);
  assert.equal(failure(device), "");
  const failed = { ...device, failures: 2, last_error: "Shutdown" };
  assert.equal(failure(failed), "Shutdown, 2 failures in a row");
});
