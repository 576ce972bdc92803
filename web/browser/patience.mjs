// How long the browser tests wait.

import { setTimeout as pause } from "node:timers/promises";

/** Long enough for a busy machine: only a failing test waits this long. */
export const PATIENCE_MS = 180_000;

/** Calls `look` until it returns true, for what nothing signals. */
export async function until(what, look) {
  const end = performance.now() + PATIENCE_MS;
  while (!(await look())) {
    if (performance.now() > end) throw new Error(`not within ${PATIENCE_MS} ms: ${what}`);
    await pause(20);
  }
}
