// The TypeScript client as a program for `badged conformance`; see
// docs/conformance.md.

import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import WebSocket from "ws";
import { Badged } from "../../web/dist/sdk/index.js";
import { adapt } from "./sdk-adapter.mjs";

const folder = process.env.BADGED_STORE;

/** A storage with a file for each entry, or in memory without a folder. */
function fileStorage() {
  const entries = new Map();
  const file = (key) => join(folder, encodeURIComponent(key));
  if (folder) {
    for (const name of readdirSync(folder).filter((name) => !name.endsWith(".next"))) {
      entries.set(decodeURIComponent(name), readFileSync(join(folder, name), "utf8"));
    }
  }
  return {
    getItem: (key) => entries.get(key) ?? null,
    setItem: (key, text) => {
      entries.set(key, text);
      if (!folder) return;
      writeFileSync(`${file(key)}.next`, text);
      renameSync(`${file(key)}.next`, file(key)); // whole, even if the program is killed
    },
    removeItem: (key) => {
      if (entries.delete(key) && folder) rmSync(file(key));
    },
  };
}

const client = adapt(Badged, process.env, fileStorage(), { WebSocket }, (line) => console.log(JSON.stringify(line)));
for await (const line of createInterface({ input: process.stdin })) client.command(JSON.parse(line));
client.stop();
