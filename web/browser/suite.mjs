// The tests of a suite and their hooks. Each has an end, so that one that hangs fails by its
// name, and the others run.

import * as node from "node:test";
import { PATIENCE_MS } from "./patience.mjs";

/** How long a test or a hook may take: some actions of the browser wait without an end. */
const limit = { timeout: 3 * PATIENCE_MS };

/** Once so many tests have failed, the others are left out: each may wait in vain as long. */
const MOST_FAILED = 3;

let begun = 0;
let passed = 0;
/** Too many tests have failed. */
let hopeless = false;

node.beforeEach(() => {
  hopeless = begun - passed >= MOST_FAILED;
  if (!hopeless) begun++;
});

export function test(name, run) {
  return node.test(name, limit, async (t) => {
    if (hopeless) return t.skip(`${MOST_FAILED} tests have failed`);
    await run(t);
    passed++;
  });
}

export const before = (run) => node.before(run, limit);
export const after = (run) => node.after(run, limit);
export const beforeEach = (run) => node.beforeEach(() => (hopeless ? undefined : run()), limit);
export const afterEach = (run) => node.afterEach(() => (hopeless ? undefined : run()), limit);
