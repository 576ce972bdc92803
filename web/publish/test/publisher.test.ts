import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { type TestContext, test } from "node:test";
import { type BadgedEvent, PublishError, Publisher, type PublisherOptions } from "../src/index.js";

type Answer = (events: { id: string }[], response: ServerResponse) => void;

/** A server that gives these answers, one a request, then stores everything. */
async function serverOf(t: TestContext, ...answers: Answer[]) {
  const requests: string[] = [];
  const server = createServer(async (request: IncomingMessage, response: ServerResponse) => {
    let body = "";
    for await (const chunk of request) body += chunk;
    requests.push(body);
    (answers.shift() ?? stored)(JSON.parse(body), response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => server.close());
  t.after(() => server.closeAllConnections());
  const { port } = server.address() as AddressInfo;
  const publisher = (options: Partial<PublisherOptions> = {}) =>
    new Publisher({ url: `http://127.0.0.1:${port}`, key: "k", source: "chat", ...options });
  const ids = () => requests.map((body) => JSON.parse(body).map(({ id }: { id: string }) => id));
  return { requests, ids, publisher };
}

const stored: Answer = (_, response) =>
  response.writeHead(202, { "badged-position": "17" }).end('{"accepted":1}');

const answer =
  (status: number, problem: object = {}, headers: Record<string, string> = {}): Answer =>
  (_, response) =>
    response
      .writeHead(status, headers)
      .end(JSON.stringify({ type: "urn:badged:problem", ...problem }));

/** Refuses the events with these ids. */
const refusing =
  (...bad: string[]): Answer =>
  (events, response) => {
    const errors = events.flatMap(({ id }, index) =>
      bad.includes(id) ? [{ index, field: "data.seq", message: "must be at least 1" }] : [],
    );
    answer(400, { detail: `${errors.length} bad events`, errors })(events, response);
  };

const message = (id: string, seq: number | bigint | string = 1): BadgedEvent => ({
  id,
  type: "message.delivered",
  data: { conversation_id: "c", seq, user_ids: ["ada"] },
});

test("an event is sent with the version and the source, and gives its position", async (t) => {
  const { requests, publisher } = await serverOf(t);
  assert.deepEqual(await publisher().publish(message("a")), { position: "17" });
  const data = { conversation_id: "c", seq: 1, user_ids: ["ada"] };
  assert.deepEqual(JSON.parse(requests[0] ?? ""), [
    { specversion: "1.0", source: "chat", id: "a", type: "message.delivered", data },
  ]);
});

test("what is published during a request shares the next one, in order", async (t) => {
  const { ids, publisher } = await serverOf(t);
  const p = publisher();
  const first = p.publish(message("a"));
  await Promise.all([first, p.publish([message("b"), message("c")])]);
  await Promise.all(["d", "e", "f"].map((id) => p.publish(message(id))));
  assert.deepEqual(ids(), [
    ["a", "b", "c"],
    ["d", "e", "f"],
  ]);
});

test("a request has a limited number of events, and a call is not divided", async (t) => {
  const { ids, publisher } = await serverOf(t);
  const p = publisher({ maxBatch: 2 });
  await Promise.all([
    p.publish(message("a")),
    p.publish([message("b"), message("c"), message("d")]),
    p.publish(message("e")),
  ]);
  assert.deepEqual(ids(), [["a"], ["b", "c", "d"], ["e"]]);
});

test("snowflakes stay exact, and numbers that were rounded are refused", async (t) => {
  const { requests, publisher } = await serverOf(t);
  const p = publisher();
  await p.publish(message("a", 1234567890123456789n));
  await p.publish(message("b", "1234567890123456789"));
  for (const body of requests) assert.equal(JSON.parse(body)[0].data.seq, "1234567890123456789");
  await assert.rejects(
    p.publish(message("c", Number(1234567890123456789n))),
    /seq: 12345678\d+ is not exact/,
  );
  assert.equal(requests.length, 2);
});

test("the same events are sent again while the server is busy or away", async (t) => {
  const { ids, publisher } = await serverOf(
    t,
    answer(429, {}, { "retry-after": "0" }),
    answer(503),
    (_, response) => response.destroy(),
  );
  await publisher().publish([message("a"), message("b")]);
  assert.deepEqual(ids(), Array(4).fill(["a", "b"]));
});

test("Retry-After is the least pause, and events are given up in time", async (t) => {
  const { ids, publisher } = await serverOf(
    t,
    answer(429, { detail: "behind" }, { "retry-after": "60" }),
  );
  await assert.rejects(publisher({ giveUpAfterMs: 1_000 }).publish(message("a")), (error) => {
    assert(error instanceof PublishError);
    assert.match(error.message, /answered 429: behind/);
    assert.deepEqual([error.status, error.retryable], [429, true]);
    return true;
  });
  assert.deepEqual(ids(), [["a"]]);
});

test("a server that does not answer is told by name", async () => {
  const p = new Publisher({ url: "http://127.0.0.1:1", key: "k", giveUpAfterMs: 1 });
  await assert.rejects(p.publish(message("a")), {
    retryable: true,
    status: undefined,
    message: /127.0.0.1:1 did not answer: /,
  });
});

test("calls with bad events are refused alone, with the index in the call", async (t) => {
  const { ids, publisher } = await serverOf(t, refusing("c", "d"));
  const p = publisher();
  const calls = [
    p.publish(message("a")),
    p.publish([message("b"), message("c")]),
    p.publish(message("d")),
    p.publish(message("e")),
  ];
  const outcomes = await Promise.allSettled(calls);
  assert.deepEqual(
    outcomes.map(({ status }) => status),
    ["fulfilled", "rejected", "rejected", "fulfilled"],
  );
  const { errors, retryable, message: says } = (outcomes[1] as PromiseRejectedResult).reason;
  assert.deepEqual(errors, [{ index: 1, field: "data.seq", message: "must be at least 1" }]);
  assert.equal(retryable, false);
  assert.match(says, /event 1: data.seq: must be at least 1/);
  assert.deepEqual(ids(), [
    ["a", "b", "c", "d", "e"],
    ["a", "e"],
  ]);
});

test("after a refusal that names no event, each call gets its own answer", async (t) => {
  const { ids, publisher } = await serverOf(
    t,
    answer(413),
    stored,
    answer(413, { detail: "too large" }),
  );
  const p = publisher();
  const [small, large] = await Promise.allSettled([
    p.publish(message("a")),
    p.publish(message("b")),
  ]);
  assert.equal(small?.status, "fulfilled");
  assert.match((large as PromiseRejectedResult).reason.message, /413: too large/);
  assert.deepEqual(ids(), [["a", "b"], ["a"], ["b"]]);
});

test("events wait up to a limit", async (t) => {
  const { publisher } = await serverOf(t);
  const p = publisher({ maxWaiting: 2 });
  const two = p.publish([message("a"), message("b")]);
  await assert.rejects(p.publish(message("c")), {
    retryable: true,
    message: /2 events are waiting, the limit is 2/,
  });
  await two;
  await p.publish([message("d"), message("e"), message("f")]); // alone, as large as it is
});

test("close waits for what was published, and ends publishing", async (t) => {
  const { ids, publisher } = await serverOf(t, answer(503));
  const p = publisher();
  const published = p.publish(message("a"));
  await p.close();
  assert.deepEqual(ids(), [["a"], ["a"]]);
  await published;
  await assert.rejects(p.publish(message("b")), /closed/);
});

test("settings that cannot work are refused", () => {
  for (const missing of [undefined, null, {}]) {
    assert.throws(() => new Publisher(missing as never), {
      name: "TypeError",
      message: "url is required, such as https://badged.example.com",
    });
  }
  const settings = { url: "http://badged", key: "k" };
  assert.throws(() => new Publisher({ ...settings, url: "badged" }), /url: "badged" is no URL/);
  assert.throws(() => new Publisher({ ...settings, key: "" }), /key: /);
  assert.throws(() => new Publisher({ ...settings, timeoutMs: 0 }), /timeoutMs: 0 is not positive/);
});
