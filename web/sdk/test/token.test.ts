import assert from "node:assert/strict";
import { test } from "node:test";
import { Bench, golden, settled, snapshot } from "./fakes.js";

/** A snapshot with a token that expires `ms` after the clock's start. */
const expiringIn = (ms: number) => ({
  ...snapshot(),
  ping_ms: 3_600_000,
  expires_at: new Date(Date.parse("2026-11-02T10:00:00Z") + ms).toISOString(),
});

test("the token is renewed before it expires, and so is the next one", async () => {
  const bench = new Bench({ random: () => 0.5 });
  const socket = await bench.online(expiringIn(900_000));
  await bench.clock.advance(719_999);
  assert.deepEqual(socket.take(), []);
  await bench.clock.advance(1);
  assert.deepEqual(socket.take(), [{ t: "auth", id: "auth", token: "token2" }]);
  assert.deepEqual(bench.tokensAskedFor, [false, true], "a kept one will not do");

  // It expires at 10:30, 18 minutes from now.
  socket.serve(golden("ok-auth").replace("11:15", "10:30"));
  await bench.clock.advance(18 * 60_000 * 0.8 - 1);
  assert.equal(bench.tokensAskedFor.length, 2);
  await bench.clock.advance(1);
  assert.equal(bench.tokensAskedFor.length, 3);
  assert.equal(bench.client.status.state, "online");
});

test("tokens that expire together are renewed at different times", async () => {
  const asked = async (random: number) => {
    const bench = new Bench({ random: () => random });
    await bench.online(expiringIn(100_000));
    for (let passed = 0; ; passed += 1_000) {
      if (bench.tokensAskedFor.length > 1) return passed;
      await bench.clock.advance(1_000);
    }
  };
  assert.deepEqual([await asked(0), await asked(0.999)], [75_000, 85_000]);
});

test("if no fresh token is available, the connection stays until the server ends it", async () => {
  let failing = false;
  const asked: boolean[] = [];
  const bench = new Bench({
    token: async ({ expired }) => {
      asked.push(expired);
      if (failing) throw new Error("login server is down");
      return "token";
    },
  });
  const socket = await bench.online(expiringIn(10_000));
  failing = true;
  await bench.clock.advance(9_999);
  assert.deepEqual(socket.take(), []);
  assert.equal(bench.client.status.state, "online");
  failing = false;
  socket.serve({ t: "bye", code: 4202 });
  await bench.retried();
  assert.deepEqual(asked, [false, true, true]);
});

test("a wrong clock does not cause constant renewals", async () => {
  const bench = new Bench();
  const socket = await bench.online(expiringIn(-7_200_000));
  await bench.clock.advance(59_999);
  assert.deepEqual(bench.tokensAskedFor, [false]);
  await bench.clock.advance(1);
  assert.deepEqual(socket.take(), [{ t: "auth", id: "auth", token: "token2" }]);
});

test("a token that outlasts any timer, and one that arrives after the end, are harmless", async () => {
  const bench = new Bench();
  await bench.online(expiringIn(10 * 365 * 86_400_000));
  assert.deepEqual(bench.tokensAskedFor, [false]);

  let give = (_: string) => {};
  const slow = new Bench({
    token: ({ expired }) =>
      expired
        ? new Promise((resolve) => {
            give = resolve;
          })
        : Promise.resolve("token"),
  });
  const socket = await slow.online(expiringIn(10_000));
  await slow.clock.advance(9_000);
  slow.client.stop();
  give("late");
  await settled();
  assert.deepEqual(socket.take(), []);
});
