import assert from "node:assert/strict";
import { test } from "node:test";
import { partsOfId, spacesIn } from "../src/ids.js";
import { hashOf, placeOf } from "../src/place.js";

test("invisible spaces of an id are separate parts", () => {
  const told = (id: string) =>
    partsOfId(id)
      .map(({ text, space }) => (space ? `[${text}]` : text))
      .join("");
  assert.equal(told("ada"), "ada");
  assert.equal(told(" ada\t"), "[ ]ada[\t]");
  assert.equal(told("ada b"), "ada b");
  assert.equal(told("ada  b"), "ada [ ]b");
  assert.equal(told("  "), "[  ]");
});

test("spaces at the ends of an id are described", () => {
  assert.equal(spacesIn("a b"), "");
  assert.equal(spacesIn(" a"), "Begins with a space");
  assert.equal(spacesIn("a\u00a0"), "Ends with a space");
  assert.equal(spacesIn(" a "), "Begins and ends with a space");
});

test("a URL keeps every id unchanged", () => {
  for (const user of ["ada", " eve ", "a&b=c#d?e+f", "Zoë/1", "%41"]) {
    const { view, params } = placeOf(hashOf("users", { user, at: undefined }));
    assert.equal(view, "users");
    assert.deepEqual([...params], [["user", user]]);
  }
  assert.equal(hashOf("jobs"), "#jobs");
  assert.equal(placeOf("").view, "");
});
