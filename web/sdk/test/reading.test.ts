import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { Seq } from "../src/index.js";
import { Bench, changes, conversation, snapshot } from "./fakes.js";

const PAUSE_MS = 250;

/** A client that is online, with a conversation `a` of which `unread` messages are unread. */
async function online(unread: number, more: object = {}) {
  const bench = new Bench();
  const socket = await bench.online(snapshot(1, [conversation("a", unread, 1, more)]));
  return { bench, socket, client: bench.client };
}

describe("an open conversation", () => {
  test("is read up to the last message delivered, at once", async () => {
    const { socket, client } = await online(3);
    client.open("a");
    assert.deepEqual(socket.commands(), ["read a 3"]);
    assert.equal(client.badge?.total, 0);
  });

  test("that is read, or that the client does not know, is not read", async () => {
    const { socket, client } = await online(0);
    client.open("a");
    client.open("unheard of");
    assert.deepEqual(socket.commands(), []);
  });

  test("is read as messages arrive, at most once in a pause", async () => {
    const { bench, socket, client } = await online(0);
    client.open("a");
    for (let seq = 1; seq <= 20; seq++) {
      socket.serve(changes(seq + 1, seq, [conversation("a", seq, seq + 1)]));
    }
    assert.deepEqual(socket.commands(), ["read a 1"]);
    await bench.clock.advance(PAUSE_MS - 1);
    assert.deepEqual(socket.commands(), []);
    await bench.clock.advance(1);
    // The first read is still unanswered, so the next one waits behind it.
    assert.deepEqual(
      client.waiting.map((command) => command.t === "read" && command.upToSeq),
      [1, 20],
    );
    assert.equal(client.badge?.total, 0);
  });

  test("is not read while the page is hidden or in the background, and then once", async () => {
    const { bench, socket, client } = await online(0);
    client.open("a");
    bench.page.look(false);
    await bench.clock.advance(PAUSE_MS);
    socket.serve(changes(2, 1, [conversation("a", 1, 2)]));
    socket.serve(changes(3, 2, [conversation("a", 2, 3)]));
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), []);
    assert.equal(client.badge?.total, 2);

    bench.page.look(true);
    assert.deepEqual(socket.commands(), [], "a glance does not read it");
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), ["read a 2"]);
  });

  test("is not read if the user looks away within the pause", async () => {
    const { bench, socket, client } = await online(0);
    client.open("a");
    bench.page.look(false);
    socket.serve(changes(2, 1, [conversation("a", 1, 2)]));
    bench.page.look(true);
    bench.page.look(false);
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), []);
  });

  test("is read while offline as well", async () => {
    const { bench, socket, client } = await online(2);
    socket.drop();
    client.open("a");
    assert.equal(client.badge?.total, 0);
    const again = await bench.retried();
    again.accept();
    again.serve(snapshot(1, [conversation("a", 2, 1)]));
    assert.deepEqual(again.commands(), ["read a 2"]);
  });

  test("is not read again once it is closed", async () => {
    const { bench, socket, client } = await online(0);
    const open = client.open("a");
    open.close();
    open.show(5);
    socket.serve(changes(2, 1, [conversation("a", 1, 2)]));
    assert.deepEqual(socket.commands(), []);
    assert.equal(bench.page.attending.size, 0);
    open.close();
  });

  test("leaves no timer behind when it is closed", async () => {
    const { bench, client } = await online(0);
    const before = bench.clock.pending;
    const open = client.open("a");
    bench.page.look(true);
    assert.equal(bench.clock.pending, before + 1);
    open.close();
    assert.equal(bench.clock.pending, before);
  });
});

describe("an open conversation of which a part is shown", () => {
  const third = { first_unread_seq: 3, last_seq: 5, read_seq: 2 };

  test("is read up to the newest message shown", async () => {
    const { bench, socket, client } = await online(3, third);
    const open = client.open("a", { upToSeq: 2 });
    assert.deepEqual(socket.commands(), [], "what is shown is read");
    open.show(4);
    assert.deepEqual(socket.commands(), ["read a 4"]);
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), []);
    open.show(undefined);
    assert.deepEqual(
      client.waiting.map((command) => command.t === "read" && command.upToSeq),
      [4, 5],
    );
  });

  test("is read once a message counts that was on the screen before", async () => {
    const { bench, socket, client } = await online(1, { first_unread_seq: 7, last_seq: 7 });
    client.open("a", { upToSeq: 8 });
    const [sent] = socket.takeCommands();
    assert.equal(sent?.up_to_seq, 8);
    socket.serve({ t: "ok", id: sent?.id });
    await bench.clock.advance(PAUSE_MS);
    // The server applied the read to 7, and delivered 8 too late to cover it.
    const late = { first_unread_seq: 8, last_seq: 8, read_seq: 7 };
    socket.serve(changes(3, 1, [conversation("a", 1, 3, late)]));
    await bench.clock.advance(30_000);
    assert.deepEqual(socket.commands(), ["read a 8"]);
  });

  test("takes no seq that is not one", async () => {
    const { client } = await online(0);
    assert.throws(() => client.open("a", { upToSeq: -1 }), TypeError);
    assert.throws(() => client.open("a").show(2 ** 53), TypeError);
    const large: Seq = 2n ** 53n;
    client.open("a", { upToSeq: large });
    client.open("a", { upToSeq: String(large) });
  });
});

describe("the mark of an open conversation", () => {
  test("ends when the conversation is opened", async () => {
    const { socket, client } = await online(0, { marked_unread: true, last_seq: 4 });
    client.open("a");
    assert.deepEqual(socket.commands(), ["read a 4"]);
  });

  test("stays if it is set meanwhile on another device", async () => {
    const { bench, socket, client } = await online(0);
    client.open("a");
    socket.serve(changes(2, 1, [conversation("a", 0, 2, { marked_unread: true })]));
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), []);
    client.open("a");
    assert.deepEqual(socket.commands(), ["read a 1"]);
  });

  test("stays if this client sets it, whatever arrives until the next visit", async () => {
    const { bench, socket, client } = await online(0);
    client.open("a");
    client.open("b");
    void client.markUnread("a");
    assert.deepEqual(socket.commands(), ["mark_unread a"]);
    socket.serve(
      changes(2, 2, [conversation("a", 1, 2, { marked_unread: true }), conversation("b", 1, 2)]),
    );
    await bench.clock.advance(PAUSE_MS);
    assert.deepEqual(socket.commands(), ["read b 1"]);
  });
});

test("a refused read is sent again only for a new state", async () => {
  const { bench, socket, client } = await online(1);
  client.open("a");
  const refuse = () => {
    const [sent] = socket.takeCommands();
    assert.equal(sent?.t, "read");
    socket.serve({ t: "error", id: sent?.id, code: "invalid", message: "no" });
  };
  refuse();
  await bench.clock.advance(PAUSE_MS);
  assert.deepEqual(socket.commands(), []);
  socket.serve(changes(2, 2, [conversation("a", 2, 2)]));
  await bench.clock.advance(PAUSE_MS);
  refuse();
});
