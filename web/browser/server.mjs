// Starts, stops and calls `badged demo` for the browser tests.

import { execFileSync, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { PATIENCE_MS, until } from "./patience.mjs";

const { BADGED_BINARY: binary, BADGED_DATA_DIR: dataDir } = process.env;
if (!binary || !dataDir) {
  throw new Error(
    "BADGED_BINARY and BADGED_DATA_DIR are not set: run go test ./tests -run Browser",
  );
}

/** The members that the room has at first. */
const FEWEST_MEMBERS = 5;

/** Ends a request that has no answer. */
const soon = () => AbortSignal.timeout(PATIENCE_MS);

/** `badged demo`, on the same port after a restart. */
export class Server {
  url = "http://127.0.0.1:0";
  #process;

  /** Resolves once it serves and its simulation is off. */
  async start() {
    const listen = this.url.replace("http://", "");
    const child = spawn(binary, ["demo", `--listen=${listen}`, `--data-dir=${dataDir}`], {
      stdio: ["ignore", "inherit", "pipe"],
    });
    this.#process = child;
    const said = [];
    for await (const line of createInterface({ input: child.stderr })) {
      said.push(line);
      const ready = line.match(/^badged: ready on (\S+)/);
      if (!ready) continue;
      this.url = ready[1];
      child.stderr.pipe(process.stderr, { end: false }); // shown if a test fails
      await this.post("simulation", { running: false });
      return;
    }
    throw new Error(`badged exited before it was ready:\n${said.join("\n")}`);
  }

  get #runs() {
    return this.#process?.exitCode === null && this.#process.signalCode === null;
  }

  /** Ends it if it runs. */
  async stop() {
    if (!this.#runs) return;
    const ended = once(this.#process, "exit");
    this.#process.kill("SIGTERM");
    const late = setTimeout(() => this.#process.kill("SIGKILL"), PATIENCE_MS);
    const [, signal] = await ended;
    clearTimeout(late);
    if (signal === "SIGKILL") throw new Error(`badged did not end within ${PATIENCE_MS} ms`);
  }

  /**
   * Undoes what a test may have left behind that failed halfway, but for unread messages: with a
   * closed app, say, no later test would see all phones online.
   */
  async reset() {
    if (!this.#runs) await this.start();
    await this.post("bus", { cut_ms: 0 });
    await this.post("transaction", { open_ms: 0 });
    const { phones } = await this.get("phones");
    for (const { user_id, closed } of phones) {
      if (closed) await this.post("phones", { user_id, closed: false });
      for (const conversation_id of await this.#muted(user_id)) {
        await this.post("levels", { conversation_id, user_id, level: "default" });
      }
      await until(`all counts for ${user_id}`, async () => !(await this.#muted(user_id)).length);
    }
    await this.post("room", { members: FEWEST_MEMBERS });
    await until("the room is small", async () => {
      const { members, trouble } = await this.get("room");
      return members === FEWEST_MEMBERS && !trouble;
    });
  }

  /** The conversations that have a level of their own for a user. */
  async #muted(user) {
    const { conversations } = await this.#read(user, "conversations");
    return conversations.filter((c) => c.level !== "default").map((c) => c.conversation_id);
  }

  async get(path) {
    const response = await fetch(`${this.url}/demo/${path}`, { signal: soon() });
    if (!response.ok) throw new Error(`${path}: status ${response.status}`);
    return response.json();
  }

  async post(path, body) {
    const response = await fetch(`${this.url}/demo/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
      signal: soon(),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  send(conversation_id, sender_id, text) {
    return this.post("messages", { conversation_id, sender_id, text });
  }

  /** Reads a conversation as the chat backend would for a user: on a device that has no page. */
  read(user, conversation_id, up_to_seq) {
    return this.publish("conversation.read", { conversation_id, user_ids: [user], up_to_seq });
  }

  /** Publishes an event as a backend beside that of the demo. */
  async publish(type, data) {
    const { publisher_key } = JSON.parse(readFileSync(join(dataDir, "keys.json"), "utf8"));
    const response = await fetch(`${this.url}/v1/events`, {
      method: "POST",
      headers: {
        "Content-Type": "application/cloudevents+json",
        Authorization: `Bearer ${publisher_key}`,
      },
      body: JSON.stringify({
        specversion: "1.0",
        id: crypto.randomUUID(),
        source: "test",
        type,
        data,
      }),
      signal: soon(),
    });
    if (!response.ok) throw new Error(`${type}: ${response.status} ${await response.text()}`);
  }

  /** The total of a user in the tables. */
  async totalOf(user) {
    return (await this.#read(user, "badge")).total;
  }

  /** Waits until the tables have it that a user has read everything. */
  async hasRead(user) {
    await until(`${user} has read everything`, async () => (await this.totalOf(user)) === 0);
  }

  async #read(user, what) {
    const response = await fetch(`${this.url}/v1/users/${user}/${what}`, {
      headers: { Authorization: `Bearer ${this.token(user, 60)}` },
      signal: soon(),
    });
    if (!response.ok) throw new Error(`${what} of ${user}: status ${response.status}`);
    return response.json();
  }

  /** Kills a process of Postgres, which then ends all connections and recovers. */
  crashDatabase() {
    const [postmaster] = readFileSync(join(dataDir, "pgdata", "postmaster.pid"), "utf8").split(
      "\n",
    );
    const children = execFileSync("pgrep", ["-P", postmaster], { encoding: "utf8" });
    process.kill(Number(children.trim().split("\n").at(-1)), "SIGKILL");
  }

  /** A token that expires in `seconds`; in the past if negative. */
  token(user, seconds) {
    const { jwt_secret } = JSON.parse(readFileSync(join(dataDir, "keys.json"), "utf8"));
    const encode = (part) => Buffer.from(JSON.stringify(part)).toString("base64url");
    const exp = Math.floor(Date.now() / 1000) + seconds;
    const signed = `${encode({ alg: "HS256", typ: "JWT", kid: "demo" })}.${encode({ sub: user, exp })}`;
    return `${signed}.${createHmac("sha256", jwt_secret).update(signed).digest("base64url")}`;
  }
}
