import assert from "node:assert/strict";
import { test } from "node:test";
import { Arrivals } from "../src/arrivals.js";

test("a message arrives with the first state that has it", async () => {
  const arrivals = new Arrivals();
  arrivals.note("hall", 1, 10);
  arrivals.note("hall", 4, 20);
  arrivals.note("hall", 4, 30); // another phone, or another change
  arrivals.note("hall", 3, 40);
  assert.equal(await arrivals.of("hall", 1, 60_000), 10);
  assert.equal(await arrivals.of("hall", 3, 60_000), 20);
  assert.equal(await arrivals.of("hall", 4, 60_000), 20);
});

test("one that has not arrived is waited for", async () => {
  const arrivals = new Arrivals();
  arrivals.note("hall", 1, 10);
  const second = arrivals.of("hall", 2, 60_000);
  const fifth = arrivals.of("hall", 5, 60_000);
  arrivals.note("lunch", 9, 15);
  arrivals.note("hall", 2, 20);
  arrivals.note("hall", 7, 30);
  assert.deepEqual([await second, await fifth], [20, 30]);
});

test("one that does not arrive in time is given up", async () => {
  const arrivals = new Arrivals();
  assert.equal(await arrivals.of("hall", 1, 0), undefined);
  arrivals.note("hall", 1, 10);
  assert.equal(await arrivals.of("hall", 1, 0), 10);
});

test("the latest arrivals are remembered", async () => {
  const arrivals = new Arrivals();
  for (let seq = 1; seq <= 1000; seq++) arrivals.note("hall", seq, seq);
  assert.equal(await arrivals.of("hall", 1000, 0), 1000);
  assert.equal(await arrivals.of("hall", 950, 0), 950);
});
