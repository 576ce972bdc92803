// The TypeScript client as a program for `badged conformance`; see
// docs/conformance.md.

import { readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { Badged } from "../../web/dist/sdk/index.js";
import { runAlone } from "./program.mjs";
import { adapt } from "./sdk-adapter.mjs";

/** A storage with a file for each entry, or in memory without a folder. */
function fileStorage(folder) {
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

export async function run(variables, commands, print) {
  const environment = {};
  if (variables.BADGED_TRANSPORT === "ws") environment.WebSocket = (await import("ws")).default;
  const client = adapt(Badged, variables, fileStorage(variables.BADGED_STORE), environment, print);
  for await (const command of commands) client.command(command);
  client.stop();
}

await runAlone(import.meta.url, run);
