import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { describe, test } from "node:test";
import { toCategory } from "../src/arguments.js";
import { pathsOf } from "../src/category.js";
import { covers, levelOf, numbersOf, treeOf } from "../src/index.js";
import { Bench, golden } from "./fakes.js";

const cases: {
  covers: { path: string; category: string; covers: boolean }[];
  valid: { category: string; valid: boolean }[];
  levels: { levels: Record<string, string>; own: string; category: string; level: string }[];
} = JSON.parse(readFileSync("sdk/testdata/paths.json", "utf8"));

test("a path covers what the shared cases say", () => {
  for (const { path, category, covers: want } of cases.covers) {
    assert.equal(covers(path, category), want, `${path} and ${category}`);
    assert.equal(pathsOf(category).includes(path), want, `${path} above ${category}`);
  }
});

test("a text is a category if the shared cases say so", () => {
  for (const { category, valid } of cases.valid) {
    if (valid) assert.equal(toCategory(category), category);
    else assert.throws(() => toCategory(category), /^TypeError: category must be/, category);
  }
});

test("the level that applies is that of the shared cases", () => {
  for (const { levels, own, category, level } of cases.levels) {
    assert.equal(levelOf({ level: own, category }, levels), level, JSON.stringify(levels));
  }
});

describe("the categories of a badge", () => {
  test("are a tree with the numbers and the levels that apply", async () => {
    const bench = new Bench();
    const socket = await bench.online(JSON.parse(golden("snapshot-paths")));
    const { badge } = bench.client;
    assert(badge);
    const lines: string[] = [];
    const write = (nodes: ReturnType<typeof treeOf>, indent: string) => {
      for (const { name, path, level, numbers, children } of nodes) {
        lines.push(`${indent}${name} ${level} ${numbers.total} + ${numbers.muted.total}`);
        assert.equal(numbers, numbersOf(bench.client, path));
        write(children, `${indent}  `);
      }
    };
    write(treeOf(badge), "");
    assert.deepEqual(lines, [
      "acme mentions 4 + 3",
      "  general all 3 + 0",
      "  random mentions 1 + 3",
      "games none 1 + 5",
      "  lfg none 1 + 5",
      "    eu none 0 + 5",
    ]);
    socket.serve({
      ...JSON.parse(golden("changes-paths")),
      categories: {},
      levels: { "x/y": "none" },
    });
    assert(bench.client.badge);
    const x = treeOf(bench.client.badge).find(({ path }) => path === "x");
    assert.deepEqual([x?.level, x?.numbers.total, x?.children[0]?.level], ["all", 0, "none"]);
  });

  test("are empty before the first state", () => {
    const { client } = new Bench();
    assert.equal(numbersOf(client).total, 0);
    assert.equal(numbersOf(client, "toString").total, 0);
  });
});

test("count adds up what a filter passes, and says whether the client has all", async () => {
  const bench = new Bench();
  assert.equal(bench.client.count(() => true).complete, false);
  const socket = await bench.online(JSON.parse(golden("snapshot-paths")));
  const folder = new Set(["general", "raid"]);
  const inFolder = bench.client.count(({ conversationId }) => folder.has(conversationId));
  assert.deepEqual(inFolder, {
    total: 3,
    mentions: 1,
    unreadConversations: 1,
    unseen: 1,
    muted: { total: 5, conversations: 1 },
    marked: 0,
    complete: true,
  });
  const { total, unseen, muted } = bench.client.count(() => true);
  assert.deepEqual(
    { total, unseen, muted },
    {
      total: 5,
      unseen: 3,
      muted: { total: 8, conversations: 2 },
    },
  );
  socket.serve(golden("snapshot-large-seqs"));
  assert.equal(bench.client.count(() => true).complete, false);
});
