import assert from "node:assert/strict";
import { test } from "node:test";
import { kinds, runs } from "../src/fold.js";
import { axisTimes } from "../src/format.js";
import type { Step } from "../src/server.js";
import { lineOf, nearestStep, signed, timesOf, whatOf } from "../src/steps.js";

function step(seconds: number, total: number): Step {
  const folded_at = new Date(1_790_000_000_000 + seconds * 1000).toISOString();
  // Long before: a line by this time would be another.
  const appended_at = new Date(1_700_000_000_000 - seconds * 1000).toISOString();
  return { appended_at, folded_at, total, change: 1, event_id: "e", position: "1/1" };
}

test("the line of a history starts before the first step and ends after the last", () => {
  const steps = [step(0, 1), step(40, 2), step(39, 3), step(100, 2)];
  const { times, totals } = lineOf({ before: 7, steps, left_out: 0 }, 1_790_000_000 + 9999);
  assert.deepEqual(totals, [7, 1, 2, 3, 2, 2]);
  assert.deepEqual(
    times.map((t) => t - 1_790_000_000),
    [-2.5, 0, 40, 40, 100, 125],
  );
  assert.deepEqual(lineOf({ before: 0, steps: [], left_out: 0 }, 1), { times: [], totals: [] });
  assert.equal(lineOf({ before: 0, steps: [step(0, 1)], left_out: 0 }, 0).times.length, 3);
  assert.deepEqual(
    timesOf(steps).map((t) => t - 1_790_000_000),
    [0, 40, 40, 100],
  );
});

test("the nearest step is the horizontally nearest, of equal ones the later", () => {
  const points = [
    [0, 100],
    [50, 50],
    [50, 20],
    [90, 0],
  ] as const;
  assert.equal(nearestStep(points, 4, 0), 0);
  assert.equal(nearestStep(points, 52, 22), 2);
  assert.equal(nearestStep(points, 52, 60), 1);
  assert.equal(nearestStep(points, 400, 90), 3);
  assert.equal(nearestStep([], 1, 1), -1);
});

test("an event has a short description", () => {
  assert.equal(
    whatOf({ type: "message.delivered", conversation_id: "tea", seq: 4 }),
    "Message 4 of tea delivered",
  );
  assert.equal(whatOf({ type: "user.read_all" }), "Everything read");
  assert.equal(whatOf({}), "Not decoded");
  assert.deepEqual([signed(2), signed(-3)], ["+2", "−3"]);
});

test("similar rows are grouped", () => {
  const sizes = (groups: { items: readonly string[] }[]) =>
    groups.map(({ items }) => items.join(""));
  const key = (text: string) => text.toLowerCase();
  assert.deepEqual(sizes(runs(["a", "A", "b", "a"], key)), ["aA", "b", "a"]);
  assert.deepEqual(sizes(kinds(["a", "A", "b", "a"], key)), ["aAa", "b"]);
});

test("an axis shows the day where it changes", () => {
  const noon = new Date(2026, 10, 21, 12).getTime() / 1000;
  assert.deepEqual(axisTimes([noon, noon + 43_200, noon + 86_400]), [
    "12:00\n2026-11-21",
    "00:00\n2026-11-22",
    "12:00",
  ]);
  assert.deepEqual(axisTimes([noon, noon + 5]), ["12:00:00\n2026-11-21", "12:00:05"]);
  assert.deepEqual(axisTimes([noon, noon + 0.25]), ["12:00:00.000\n2026-11-21", "12:00:00.250"]);
});
