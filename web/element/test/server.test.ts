import assert from "node:assert/strict";
import { test } from "node:test";
import { BadgedCount, defineBadgedCount } from "../src/index.js";

test("the module loads on a server, and defines nothing there", () => {
  defineBadgedCount();
  assert.equal(typeof BadgedCount, "function");
});
