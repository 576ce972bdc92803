import assert from "node:assert/strict";
import { test } from "node:test";
import { inTree, listed } from "../src/categories.js";

test("each category follows the one above it, whatever characters sort between", () => {
  assert.deepEqual(inTree(["acme2", "acme-x", "acme/general", "acme", "acme/a b", "acme"]), [
    "acme",
    "acme/a b",
    "acme/general",
    "acme-x",
    "acme2",
  ]);
});

test("numbers that are absent are 0", () => {
  assert.deepEqual(
    listed({ total: 3, mentions: 0, unread_conversations: 1, unseen: 2 }).map(([, n]) => n),
    [3, 0, 1, 2, 0, 0, 0],
  );
  assert(listed(undefined).every(([, n]) => n === 0));
});
