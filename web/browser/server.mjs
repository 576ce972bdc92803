// Starts, stops and calls `badged demo` for the browser tests.

import { execFileSync, spawn } from "node:child_process";
import { createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";

const { BADGED_BINARY: binary, BADGED_DATA_DIR: dataDir } = process.env;
if (!binary || !dataDir) {
  throw new Error(
    "BADGED_BINARY and BADGED_DATA_DIR are not set: run go test ./tests -run Browser",
  );
}

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
      child.stderr.resume();
      await this.post("simulation", { running: false });
      return;
    }
    throw new Error(`badged exited before it was ready:\n${said.join("\n")}`);
  }

  async stop() {
    const ended = new Promise((resolve) => this.#process.once("exit", resolve));
    this.#process.kill("SIGTERM");
    await ended;
  }

  async get(path) {
    const response = await fetch(`${this.url}/demo/${path}`);
    if (!response.ok) throw new Error(`${path}: status ${response.status}`);
    return response.json();
  }

  async post(path, body) {
    const response = await fetch(`${this.url}/demo/${path}`, {
      method: "POST",
      body: JSON.stringify(body),
    });
    if (!response.ok) throw new Error(`${path}: ${response.status} ${await response.text()}`);
    return response.json();
  }

  send(conversation_id, sender_id, text) {
    return this.post("messages", { conversation_id, sender_id, text });
  }

  /** Reads a conversation as the chat backend would for a user: on a device that has no page. */
  async read(user, conversation_id, up_to_seq) {
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
        type: "conversation.read",
        data: { conversation_id, user_ids: [user], up_to_seq },
      }),
    });
    if (!response.ok) throw new Error(`read: ${response.status} ${await response.text()}`);
  }

  /** The total of a user in the tables. */
  async totalOf(user) {
    const response = await fetch(`${this.url}/v1/users/${user}/badge`, {
      headers: { Authorization: `Bearer ${this.token(user, 60)}` },
    });
    if (!response.ok) throw new Error(`badge of ${user}: status ${response.status}`);
    return (await response.json()).total;
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
