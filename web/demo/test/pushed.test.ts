import assert from "node:assert/strict";
import { test } from "node:test";
import { isNewer } from "../src/pushed.js";

test("a push that is late or repeated changes nothing", () => {
  const shown = { epoch: "a", version: 7 };
  assert.equal(isNewer({ epoch: "a", version: 1 }, undefined), true);
  assert.equal(isNewer({ epoch: "a", version: 8 }, shown), true);
  assert.equal(isNewer({ epoch: "a", version: 7 }, shown), false);
  assert.equal(isNewer({ epoch: "a", version: 6 }, shown), false);
  assert.equal(isNewer({ epoch: "b", version: 1 }, shown), true);
});
