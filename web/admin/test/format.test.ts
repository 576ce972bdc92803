import assert from "node:assert/strict";
import { test } from "node:test";
import {
  count,
  counted,
  duration,
  forInput,
  lagShare,
  levelOf,
  onShard,
  rate,
  when,
} from "../src/format.js";

test("numbers are short, and an unknown one is a dash", () => {
  assert.deepEqual([0, 0.04, 3.26, 10, 999.6, 12_345].map(rate), [
    "0",
    "0.0",
    "3.3",
    "10",
    "1K",
    "12.3K",
  ]);
  assert.equal(rate(null), "–");
  assert.equal(rate(undefined), "–");
  assert.equal(count(1_234_567), "1,234,567");
  assert.equal(count("1234567890123456789"), "1,234,567,890,123,456,789");
  assert.equal(counted(1, "event"), "1 event");
  assert.equal(counted(1000, "event"), "1,000 events");
});

test("a level says when it ends", () => {
  assert.equal(levelOf({ level: "mentions" }), "mentions");
  const ends = new Date(2026, 10, 21, 9, 30).toISOString();
  assert.equal(levelOf({ level: "none", level_until: ends }), "none until 2026-11-21 09:30:00");
});

test("durations use the fitting unit", () => {
  assert.deepEqual([0, 0.0001, 0.0213, 2.14, 73, 600, 7300, 200_000].map(duration), [
    "0 s",
    "1 ms",
    "21 ms",
    "2.1 s",
    "73 s",
    "10 min",
    "2 h",
    "2 d",
  ]);
  assert.equal(duration(null), "–");
});

test("times are local, and valid for an input", () => {
  const time = new Date(2026, 10, 21, 9, 5, 7);
  assert.equal(when(time), "2026-11-21 09:05:07");
  assert.equal(forInput(time), "2026-11-21T09:05:07");
});

test("a bar shows any lag, and never exceeds its width", () => {
  assert.equal(lagShare(0), 0);
  assert(lagShare(1) > 0.05);
  assert(lagShare(10) > lagShare(9));
  assert.equal(lagShare(1e9), 1);
});

test("a shard is named if there are several", () => {
  assert.equal(onShard({ shard: "b" }), "shard b · ");
  assert.equal(onShard({}), "");
});
