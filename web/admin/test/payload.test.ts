import assert from "node:assert/strict";
import { test } from "node:test";
import { payloadText } from "../src/payload.js";

const letter = (payload: unknown, payload_base64?: string) =>
  payloadText({
    id: 1,
    partition: 0,
    position: "1/2",
    payload,
    ...(payload_base64 === undefined ? {} : { payload_base64 }),
    reason: "invalid",
    at: "2026-01-31T23:59:59Z",
  });

test("a payload that is JSON is shown as JSON", () => {
  assert.equal(letter({ id: "7" }), '{\n  "id": "7"\n}');
});

test("a payload that is no JSON is shown as text, or in base64 if it is none", () => {
  assert.equal(letter(null, btoa("no JSON")), "No JSON, 7 bytes:\nno JSON");
  assert.equal(letter(null, btoa("\xff\xfe")), "No text, 2 bytes in base64:\n//4=");
  assert.equal(letter(null, btoa("a\0b")), "No text, 3 bytes in base64:\nYQBi");
});

test("a payload that is missing is explained", () => {
  assert.match(letter(null), /too large to keep/);
});

test("a long payload is cut", () => {
  assert.match(letter(null, btoa("x".repeat(20_000))), /^No JSON, 20,000 bytes:\nx{10000}\n… cut/);
});
