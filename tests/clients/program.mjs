// What the programs for `badged conformance` share. A client is a function
// `run(variables, commands, print)`: it gets the variables of the kit and an async iterable
// of commands, prints lines, and ends after the last command.

import { createServer } from "node:net";
import { createInterface } from "node:readline";
import { fileURLToPath } from "node:url";

/** Runs a client in this process if its script is the program. */
export async function runAlone(script, run) {
  if (process.argv[1] !== fileURLToPath(script)) return;
  const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
  const commands = async function* () {
    for await (const line of lines) yield JSON.parse(line);
  };
  await run(process.env, commands(), (line) => console.log(JSON.stringify(line)));
  process.exit();
}

/** Listens on a free port of this machine and returns it. */
export function listen(server) {
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server.address().port)));
}

/**
 * Runs a client for each program that connects, which are `forward.sh PORT`, until the
 * input of this process ends; it prints the port. The third argument of `run` also gets
 * bytes, and the fourth says whether the program was killed.
 */
export async function serve(run) {
  const server = createServer((socket) => {
    socket.on("error", () => {}); // the kit kills programs
    serveProgram(socket, run).then(
      () => socket.end(),
      (error) => {
        console.error(error);
        socket.resetAndDestroy(); // the program ends with 1
      },
    );
  });
  console.log(JSON.stringify({ event: "open", text: String(await listen(server)) }));
  for await (const _ of createInterface({ input: process.stdin })); // until the test ends
}

async function serveProgram(socket, run) {
  const lines = createInterface({ input: socket })[Symbol.asyncIterator]();
  const next = async () => (await lines.next().catch(() => ({}))).value;
  const variables = {};
  for (let line = await next(); line; line = await next()) {
    const [name] = line.split("=", 1);
    variables[name] = line.slice(name.length + 1);
  }
  let killed = true;
  const commands = async function* () {
    for (let line = await next(); line; line = await next()) {
      if (line === "end") {
        killed = false;
        return;
      }
      yield JSON.parse(line);
    }
  };
  const print = (line) => socket.write(line instanceof Uint8Array ? line : `${JSON.stringify(line)}\n`);
  await run(variables, commands(), print, () => killed);
}

/** Whether a conversation can have this id: the server refuses a command with any other. */
export function canBeId(id) {
  return id !== "" && Buffer.byteLength(id) <= 128 && !/\p{Cc}/u.test(id);
}

/** Whether a text is the path of a category. */
export function canBeCategory(path) {
  const parts = path.split("/");
  const fits = (part) => part !== "" && [...part].length <= 64;
  return Buffer.byteLength(path) <= 255 && !/\p{Cc}/u.test(path) && parts.length <= 8 && parts.every(fits);
}

/** Whether a text is a level. */
export function canBeLevel(level) {
  return ["default", "all", "mentions", "direct_mentions", "none"].includes(level);
}
