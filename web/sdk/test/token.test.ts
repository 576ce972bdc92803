import assert from "node:assert/strict";
import { test } from "node:test";
import { Bench, FakeClock, golden, settled, snapshot } from "./fakes.js";

/** A snapshot with a token that expires in `ms`. */
const expiringIn = (ms: number) => ({
  ...snapshot(),
  ping_ms: 3_600_000,
  expires_in_ms: ms,
});

test("the token is renewed before it expires, and so is the next one", async () => {
  const bench = new Bench({ random: () => 0.5 });
  const socket = await bench.online(expiringIn(900_000));
  await bench.clock.advance(719_999);
  assert.deepEqual(socket.take(), []);
  await bench.clock.advance(1);
  assert.deepEqual(socket.take(), [{ t: "auth", id: "auth", token: "token2" }]);
  assert.deepEqual(bench.tokensAskedFor, [false, true], "a kept one will not do");

  socket.serve(golden("ok-auth").replace("3600000", "1080000"));
  await bench.clock.advance(1_080_000 * 0.8 - 1);
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

for (const [name, offMs] of [
  ["ahead", 3_599_000],
  ["far ahead", 40 * 365 * 86_400_000],
  ["behind", -3_599_000],
] as const) {
  test(`field case wrong-clock (Hubs#5273, DesktopCommander#629): while the clock is ${name}, a lifetime takes one token`, async () => {
    const clock = new FakeClock();
    const date = clock.date.bind(clock);
    clock.date = () => date() + offMs;
    const bench = new Bench({ clock });
    const hour = 3_600_000;
    const socket = await bench.online(expiringIn(hour));
    for (let passed = 0; passed < 10 * hour; passed += 60_000) {
      await clock.advance(60_000);
      socket.serve({ t: "pong" });
      for (const { id } of socket.takeCommands()) {
        socket.serve({ t: "ok", id, expires_in_ms: hour });
      }
    }
    // Each is renewed after 85 % of its time.
    assert.equal(bench.tokensAskedFor.length, 1 + Math.floor(10 / 0.85));
    assert.equal(bench.client.status.state, "online");
  });
}

test("a token source whose tokens are always nearly over is not asked again and again", async () => {
  const bench = new Bench();
  const socket = await bench.online(expiringIn(1_000));
  for (let passed = 0; passed < 60_000; passed += 100) {
    await bench.clock.advance(100);
    for (const { id } of socket.takeCommands()) socket.serve({ t: "ok", id, expires_in_ms: 1 });
  }
  assert.equal(bench.tokensAskedFor.length, 1 + 1 + 5, "at the start, after a second, every ten");
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
