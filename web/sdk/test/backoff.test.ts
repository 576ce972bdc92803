import assert from "node:assert/strict";
import { test } from "node:test";
import { Backoff } from "../src/backoff.js";

const bounds = (backoff: Backoff, count: number, hintMs = 0) =>
  Array.from({ length: count }, () => backoff.next(hintMs));

test("the bound doubles up to the maximum", () => {
  assert.deepEqual(
    bounds(new Backoff(500, 5_000, () => 0.999999), 6),
    [499, 999, 1999, 3999, 4999, 4999],
  );
});

test("the jitter is full: a pause lies between 0 and the bound", () => {
  assert.deepEqual(bounds(new Backoff(500, 5_000, () => 0), 4), [0, 0, 0, 0]);
  assert.deepEqual(bounds(new Backoff(500, 5_000, () => 0.5), 4), [250, 500, 1000, 2000]);
});

test("many failures do not overflow the bound", () => {
  const backoff = new Backoff(500, 30_000, () => 0.5);
  assert.equal(bounds(backoff, 5_000).at(-1), 15_000);
});

test("the pause of the server is the minimum, plus jitter", () => {
  assert.deepEqual(bounds(new Backoff(500, 5_000, () => 0), 2, 3_700), [3700, 3700]);
  assert.deepEqual(bounds(new Backoff(500, 5_000, () => 0.5), 2, 3_700), [3950, 4200]);
});

test("a pause that would overflow a timer is cut to an hour", () => {
  assert.equal(new Backoff(500, 5_000, () => 0).next(2 ** 40), 3_600_000);
});

test("reset starts over", () => {
  const backoff = new Backoff(500, 5_000, () => 0.5);
  bounds(backoff, 3);
  backoff.reset();
  assert.equal(backoff.next(0), 250);
});
