// A small client by the package eventsource, as a program for `badged conformance
// --transport sse`; see docs/conformance.md. It sends one command at a time.

import { randomUUID } from "node:crypto";
import { setTimeout as pause } from "node:timers/promises";
import { EventSource } from "eventsource";
import { canBeCategory, canBeId, canBeLevel, runAlone } from "./program.mjs";

export async function run({ BADGED_URL, BADGED_TOKEN, BADGED_FRESH_TOKEN, BADGED_BACKOFF_MS, BADGED_STORE, BADGED_TRANSPORT }, commands, print) {
  if (BADGED_TRANSPORT === "ws" || BADGED_STORE) {
    print({ unsupported: BADGED_STORE ? "storing its state" : "WebSockets" });
    return;
  }

  let token = BADGED_TOKEN;
  let held; // the last state frame
  let conversations = {};
  let patienceMs = 60_000;
  const queue = []; // commands without an answer: {n, text}
  let posting = false;
  let watchdog;
  let stopped = false;

  const authorized = (headers) => ({ ...headers, Authorization: `Bearer ${token}` });

  /** The problem in an answer; undefined if it is not one of the server. */
  async function problemIn(response) {
    try {
      return await response.json();
    } catch {
      return undefined;
    }
  }

  /** Adds the token, and makes streams fail that are silent. */
  async function openStream(url, init) {
    const response = await fetch(url, { ...init, headers: authorized(init.headers) });
    if (!response.ok) {
      if (response.status === 401) token = BADGED_FRESH_TOKEN;
      await pause((await problemIn(response))?.retry_ms ?? 0);
      throw new Error(`status ${response.status}`); // it tries again, which it does not after a status
    }
    const watch = (controller) => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => controller.error(new Error("silence")), patienceMs).unref();
    };
    const heard = new TransformStream({
      start: watch,
      transform(chunk, controller) {
        controller.enqueue(chunk);
        setTimeout(watch, 0, controller); // once the chunk is read, which may change the patience
      },
      flush: () => clearTimeout(watchdog),
    });
    return { status: response.status, headers: response.headers, redirected: false, body: response.body.pipeThrough(heard) };
  }

  const source = new EventSource(`${BADGED_URL}/v1/sse`, { fetch: openStream });
  source.addEventListener("message", ({ data }) => {
    const frame = JSON.parse(data);
    if (frame.ping_ms) patienceMs = frame.ping_ms * 2.5;
    switch (frame.t) {
      case "snapshot":
      case "changes":
        if (frame.t === "snapshot") conversations = {};
        else if (frame.version <= held.version) return;
        held = frame;
        for (const c of frame.conversations) conversations[c.conversation_id] = c;
        print({ version: held.version, total: held.total, conversations });
        break;
      case "bye": // `retry` of the event says when to come back
        if (frame.code === 4202) token = BADGED_FRESH_TOKEN;
        if (frame.code >= 4001 && frame.code <= 4004) {
          stop();
          print({ refused: frame.code });
        }
        break;
    }
  });

  function stop() {
    stopped = true;
    source.close();
    clearTimeout(watchdog);
  }

  /** Sends the commands in order, each until it has a final answer. */
  async function flush() {
    if (posting) return;
    posting = true;
    while (queue.length > 0 && !stopped) {
      const [{ n, text }] = queue;
      const answer = await post(text);
      if (answer?.retry_ms === undefined && answer !== undefined) {
        queue.shift();
        print(answer.t === "ok" ? { done: n } : { failed: n, code: answer.code });
      } else {
        await pause(answer?.retry_ms ?? Number(BADGED_BACKOFF_MS));
      }
    }
    posting = false;
  }

  /** The server's answer, or undefined. */
  async function post(body) {
    try {
      const response = await fetch(`${BADGED_URL}/v1/commands`, { method: "POST", headers: authorized({ "Content-Type": "application/json" }), body });
      return await problemIn(response);
    } catch {
      return undefined;
    }
  }

  for await (const { n, do: t, conversation_id, up_to_seq, category, level } of commands) {
    const invalid = conversation_id !== undefined && !canBeId(conversation_id);
    if (invalid || (category !== undefined && !canBeCategory(category)) || (level !== undefined && !canBeLevel(level))) {
      print({ failed: n, code: "invalid" });
      continue;
    }
    let text = JSON.stringify({ t, id: randomUUID(), conversation_id, category, level });
    // JSON.stringify would round a number that large.
    if (up_to_seq !== undefined) text = text.replace(/}$/, `,"up_to_seq":${BigInt(up_to_seq)}}`);
    queue.push({ n, text });
    void flush();
  }
  stop();
}

await runAlone(import.meta.url, run);
