// A small client by the package ws, as a program for `badged conformance`; see
// docs/conformance.md. It gives its token in the header and sends one command at a
// time.

import { randomUUID } from "node:crypto";
import WebSocket from "ws";
import { canBeCategory, canBeId, canBeLevel, runAlone } from "./program.mjs";

export async function run({ BADGED_URL, BADGED_TOKEN, BADGED_FRESH_TOKEN, BADGED_AUTH, BADGED_BACKOFF_MS, BADGED_STORE, BADGED_TRANSPORT }, commands, print) {
  let lacks;
  if (BADGED_TRANSPORT === "sse") lacks = "server-sent events";
  if (BADGED_STORE) lacks = "storing its state";
  if (BADGED_AUTH === "hello" || BADGED_AUTH === "subprotocol") lacks = `a token by the way ${BADGED_AUTH}`;
  if (lacks) {
    print({ unsupported: lacks });
    return;
  }

  let token = BADGED_TOKEN;
  let held; // the last state frame
  let conversations = {};
  const queue = []; // commands without an answer: {n, id, text}
  let sent = false;
  let online; // the socket, once a state has arrived
  let retry; // the timer of the next attempt
  let stopped = false;

  function apply(frame) {
    if (frame.t === "snapshot") conversations = {};
    else if (frame.version <= held.version) return;
    held = frame;
    for (const c of frame.conversations) conversations[c.conversation_id] = c;
    print({ version: held.version, total: held.total, conversations });
  }

  function flush() {
    if (online === undefined || sent || queue.length === 0) return;
    sent = true;
    online.send(queue[0].text);
  }

  function connect() {
    const headers = { Authorization: `Bearer ${token}` };
    const socket = new WebSocket(`${BADGED_URL.replace("http", "ws")}/v1/ws`, ["badge.v1"], { headers });
    const timers = [];
    let watchdog;
    let patienceMs = 60_000;
    let ended = false;
    const end = (code, pauseMs) => {
      if (ended) return;
      ended = true;
      online = undefined;
      sent = false;
      for (const timer of timers) clearTimeout(timer);
      clearTimeout(watchdog);
      socket.terminate();
      if (stopped) return;
      if (code >= 4001 && code <= 4004) {
        print({ refused: code });
        return;
      }
      if (code === 4202) token = BADGED_FRESH_TOKEN;
      retry = setTimeout(connect, pauseMs + Math.random() * Number(BADGED_BACKOFF_MS));
    };
    const watch = () => {
      clearTimeout(watchdog);
      watchdog = setTimeout(() => end(0, 0), patienceMs);
    };
    watch();
    socket.on("open", () => {
      socket.send(JSON.stringify({ t: "hello", epoch: held?.epoch, version: held?.version }));
    });
    socket.on("error", () => {}); // a close event follows
    socket.on("close", (code) => end(code, 0));
    socket.on("message", (data) => {
      if (ended) return;
      const frame = JSON.parse(data.toString());
      if (frame.ping_ms) patienceMs = frame.ping_ms * 2.5;
      watch();
      switch (frame.t) {
        case "snapshot":
        case "changes":
          apply(frame);
          if (online === undefined) {
            const renew = () => {
              token = BADGED_FRESH_TOKEN;
              socket.send(JSON.stringify({ t: "auth", id: "auth", token }));
            };
            timers.push(setTimeout(renew, frame.expires_in_ms * 0.75));
            online = socket;
          }
          flush();
          break;
        case "ok":
        case "error": {
          if (frame.id !== queue[0]?.id) break;
          if (frame.retry_ms) {
            const again = () => {
              sent = false;
              flush();
            };
            timers.push(setTimeout(again, frame.retry_ms));
            break;
          }
          const { n } = queue.shift();
          sent = false;
          print(frame.t === "ok" ? { done: n } : { failed: n, code: frame.code });
          flush();
          break;
        }
        case "ping":
          socket.send('{"t":"pong"}');
          break;
        case "bye":
          end(frame.code, frame.reconnect_ms ?? 0);
          break;
      }
    });
  }

  connect();
  for await (const { n, do: t, conversation_id, up_to_seq, category, level } of commands) {
    const invalid = conversation_id !== undefined && !canBeId(conversation_id);
    if (invalid || (category !== undefined && !canBeCategory(category)) || (level !== undefined && !canBeLevel(level))) {
      print({ failed: n, code: "invalid" });
      continue;
    }
    const id = randomUUID();
    let text = JSON.stringify({ t, id, conversation_id, category, level });
    // JSON.stringify would round a number that large.
    if (up_to_seq !== undefined) text = text.replace(/}$/, `,"up_to_seq":${BigInt(up_to_seq)}}`);
    queue.push({ n, id, text });
    flush();
  }
  stopped = true;
  clearTimeout(retry);
  online?.terminate();
}

await runAlone(import.meta.url, run);
