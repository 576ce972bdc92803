// Runs the clients of many programs of `badged conformance` in one process, since starting
// Node takes longer than a scenario: `node conformance-host.mjs conformance-sdk.mjs`. A
// client that stores has a process of its own, which is killed if its program is.

import { spawn } from "node:child_process";
import { once } from "node:events";
import { serve } from "./program.mjs";

const script = process.argv[2];
const { run } = await import(`./${script}`);

async function runProcess(variables, commands, print, killed) {
  const child = spawn(process.execPath, [script], { env: { ...process.env, ...variables }, stdio: ["pipe", "pipe", "inherit"] });
  const ended = once(child, "close");
  child.stdin.on("error", () => {}); // it has ended
  child.stdout.on("data", print);
  for await (const command of commands) child.stdin.write(`${JSON.stringify(command)}\n`);
  if (killed()) child.kill("SIGKILL");
  child.stdin.end();
  const [code] = await ended;
  if (code !== 0 && !killed()) throw new Error(`${script} ended with ${code}`);
}

await serve((variables, ...rest) => (variables.BADGED_STORE ? runProcess(variables, ...rest) : run(variables, ...rest)));
process.exit();
