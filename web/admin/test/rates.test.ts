import assert from "node:assert/strict";
import { test } from "node:test";
import { seconds, withGaps } from "../src/rates.js";
import type { Rate } from "../src/server.js";

function point(second: number): Rate {
  return {
    at: new Date(second * 1000).toISOString(),
    appended_per_second: 1,
    folded_per_second: 1,
    delay_p50_seconds: null,
    delay_p99_seconds: null,
    websockets: 1,
    event_streams: 0,
    frames_per_second: 1,
    repairs_per_second: 0,
  };
}

test("a line has a gap where points are missing", () => {
  const all = withGaps([10, 20, 60, 70].map(point));
  assert.deepEqual(all.map(seconds), [10, 20, 30, 60, 70]);
  assert.deepEqual(
    all.map(({ websockets }) => websockets),
    [1, 1, null, 1, 1],
  );
  assert.deepEqual(withGaps([]), []);
});
