import assert from "node:assert/strict";
import { test } from "node:test";
import { parseExact, toSeq } from "../src/seq.js";

test("a seq is a number up to 2^53 - 1 and a bigint above", () => {
  for (const same of [42, 42n, "42", "0042"]) assert.equal(toSeq(same), 42);
  assert.equal(toSeq("0"), 0);
  assert.equal(toSeq(2n ** 53n - 1n), Number.MAX_SAFE_INTEGER);
  assert.equal(toSeq("9007199254740992"), 9007199254740992n);
  assert.equal(toSeq("9223372036854775807"), 2n ** 63n - 1n);
});

test("seqs of both forms compare", () => {
  const [small, large, larger] = [toSeq("7"), toSeq("9007199254740993"), toSeq(2n ** 60n)];
  assert(small < large && large < larger && larger > small);
  assert(toSeq("9007199254740993") === large);
});

test("a number that may have been rounded is refused", () => {
  assert.throws(() => toSeq(2 ** 53), /as a bigint or a string/);
  assert.throws(() => toSeq(JSON.parse("1851234567890123777")), TypeError);
});

test("an invalid seq is refused", () => {
  for (const bad of [
    -1,
    1.5,
    Number.NaN,
    Infinity,
    -1n,
    2n ** 63n,
    "",
    "-1",
    "1e3",
    "0x10",
    " 1",
  ]) {
    assert.throws(() => toSeq(bad), TypeError, String(bad));
  }
});

test("large integers survive JSON, and nothing else changes", () => {
  const cases: [string, unknown][] = [
    ['{"a":12}', { a: 12 }],
    ['{"a":9007199254740991}', { a: 9007199254740991 }],
    ['{"a":9007199254740993}', { a: "9007199254740993" }],
    ["[-9007199254740993,1]", ["-9007199254740993", 1]],
    ["[0.30000000000000004441,12345678901234567e3]", [0.30000000000000004, 1.2345678901234567e19]],
    [
      '{"id 9007199254740993":"x 9007199254740993 y"}',
      { "id 9007199254740993": "x 9007199254740993 y" },
    ],
    ['["\\"9007199254740993\\\\",9007199254740993]', ['"9007199254740993\\', "9007199254740993"]],
  ];
  for (const [text, value] of cases) assert.deepEqual(parseExact(text), value, text);
});
