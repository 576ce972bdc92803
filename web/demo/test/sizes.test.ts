import assert from "node:assert/strict";
import { test } from "node:test";
import { duration, placeOf, SIZES, share, sizeAt, thousands } from "../src/sizes.js";

test("each place of the slider has a size, in ascending order", () => {
  assert.deepEqual(
    SIZES.map((_, place) => sizeAt(place)),
    [...SIZES].sort((a, b) => a - b),
  );
  SIZES.forEach((size, place) => {
    assert.equal(placeOf(size), place);
  });
  assert.deepEqual([sizeAt(-3), sizeAt(99), sizeAt(0.4)], [5, 100_000, 5]);
});

test("a number between two sizes is between their places", () => {
  assert.equal(placeOf(1), 0);
  assert.equal(placeOf(1_000_000), SIZES.length - 1);
  const place = placeOf(3_000);
  assert(place > placeOf(2_000) && place < placeOf(5_000));
});

test("numbers and times are short", () => {
  assert.equal(thousands(100_000), "100,000");
  assert.deepEqual([0.04, 0.84, 12.4, 1234, 15_640].map(duration), [
    "0.0 ms",
    "0.8 ms",
    "12 ms",
    "1,234 ms",
    "15.6 s",
  ]);
});

test("bars are logarithmic and never longer than full", () => {
  assert.equal(share(0, 1000), 0.02);
  assert.equal(share(1000, 1000), 1);
  assert.equal(share(1e9, 1000), 1);
  assert(Math.abs(share(10, 1000) - 1 / 3) < 1e-9);
});
