// The TypeScript client in pages of Chromium, for `badged conformance`; see
// docs/conformance.md. This process has the browser, and the clients of all scenarios,
// until its input ends: loading Playwright and a browser for each would take most of the
// time. It prints the port at which the programs reach it, which are `forward.sh PORT`.

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { launch, newContext } from "../../web/browser/chromium.mjs";
import { listen, serve } from "./program.mjs";

const files = {
  "/": ["text/html", "<!doctype html><title>Conformance</title><link rel=icon href=data:,>"],
  "/sdk.js": ["text/javascript", readFileSync("../../web/dist/sdk/index.js", "utf8")],
  "/adapter.js": ["text/javascript", readFileSync("sdk-adapter.mjs", "utf8")],
};

const browser = await launch();
const context = await newContext(browser);
/** What prints a line of the client in a page. */
const printers = new Map();
await context.exposeBinding("print", ({ page }, line) => printers.get(page)(line));

/**
 * Opens a page at an origin of its own: it shares storage and locks with no other. The
 * origin has a real port, since browsers let no page from elsewhere connect to this machine.
 */
async function openPage() {
  const server = createServer((request, response) => {
    const [type, body] = files[request.url] ?? ["text/plain", undefined];
    response.writeHead(body === undefined ? 404 : 200, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  });
  const [port, page] = await Promise.all([listen(server), context.newPage()]);
  page.on("pageerror", (error) => console.error(error));
  return { page, url: `http://127.0.0.1:${port}/` };
}

/** Pages whose clients have ended. */
const idle = [];

async function run(variables, commands, print, killed) {
  const folder = variables.BADGED_STORE;
  const running = folder && join(folder, "running");
  if (running && existsSync(running)) {
    print({ unsupported: "being killed: the browser has the storage, and lives on" });
    return;
  }
  // A file for each entry of localStorage.
  const stored = folder ? readdirSync(folder).map((name) => [decodeURIComponent(name), readFileSync(join(folder, name), "utf8")]) : [];
  if (running) writeFileSync(running, "");

  const place = idle.pop() ?? (await openPage());
  const { page, url } = place;
  printers.set(page, print);
  await page.goto(url);
  const start = async ([variables, stored]) => {
    const [{ Badged }, { adapt }] = await Promise.all([import("/sdk.js"), import("/adapter.js")]);
    localStorage.clear();
    for (const [key, text] of stored) localStorage.setItem(key, text);
    globalThis.client = adapt(Badged, variables, localStorage, {}, globalThis.print);
  };
  await page.evaluate(start, [variables, stored]);
  for await (const command of commands) await page.evaluate((command) => globalThis.client.command(command), command);
  const left = await page.evaluate(() => {
    globalThis.client.stop();
    return Object.entries(localStorage);
  });
  printers.set(page, () => {});
  idle.push(place);
  if (folder && !killed()) {
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
    for (const [key, text] of left) writeFileSync(join(folder, encodeURIComponent(key)), text);
  }
}

await serve(run);
await browser.close();
process.exit();
