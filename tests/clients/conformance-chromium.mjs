// The TypeScript client in a page of Chromium, as a program for `badged conformance`;
// see docs/conformance.md. With the argument `browser` it runs the browser and the page
// that all scenarios share until its input ends, and prints where they are; BROWSER
// tells the others.

import { existsSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { connect, launchServer } from "../../web/browser/chromium.mjs";

const print = (line) => console.log(JSON.stringify(line));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();

if (process.argv[2] === "browser") {
  const [browser, page] = await Promise.all([launchServer(), servePage()]);
  const { port } = page.address();
  print({ event: "open", text: JSON.stringify({ browser: browser.wsEndpoint(), page: `http://127.0.0.1:${port}/` }) });
  for await (const _ of lines); // until the test ends
  page.close();
  await browser.close();
} else {
  await run(JSON.parse(process.env.BROWSER));
}

/** Serves the page from a real port: browsers let no page from elsewhere connect to this machine. */
function servePage() {
  const files = {
    "/": ["text/html", "<!doctype html><title>Conformance</title><link rel=icon href=data:,>"],
    "/sdk.js": ["text/javascript", readFileSync("../../web/dist/sdk/index.js", "utf8")],
    "/adapter.js": ["text/javascript", readFileSync("sdk-adapter.mjs", "utf8")],
  };
  const server = createServer((request, response) => {
    const [type, body] = files[request.url] ?? ["text/plain", undefined];
    response.writeHead(body === undefined ? 404 : 200, { "Content-Type": type, "Cache-Control": "no-store" }).end(body);
  });
  return new Promise((resolve) => server.listen(0, "127.0.0.1", () => resolve(server)));
}

async function run(shared) {
  const folder = process.env.BADGED_STORE;
  const running = folder && join(folder, "running");
  if (running && existsSync(running)) print({ unsupported: "being killed: the browser has the storage, and lives on" });
  // A file for each entry of localStorage.
  const stored = folder ? readdirSync(folder).map((name) => [decodeURIComponent(name), readFileSync(join(folder, name), "utf8")]) : [];
  if (running) writeFileSync(running, "");

  const browser = await connect(shared.browser);
  const page = await (await browser.newContext()).newPage();
  page.on("pageerror", (error) => console.error(error));
  await page.exposeFunction("print", print);
  await page.goto(shared.page);
  const variables = Object.fromEntries(Object.entries(process.env).filter(([name]) => name.startsWith("BADGED_")));
  const start = async ([variables, stored]) => {
    const [{ Badged }, { adapt }] = await Promise.all([import("/sdk.js"), import("/adapter.js")]);
    for (const [key, text] of stored) localStorage.setItem(key, text);
    globalThis.client = adapt(Badged, variables, localStorage, {}, globalThis.print);
  };
  await page.evaluate(start, [variables, stored]);
  for await (const line of lines) await page.evaluate((command) => globalThis.client.command(command), JSON.parse(line));
  const left = await page.evaluate(() => {
    globalThis.client.stop();
    return Object.entries(localStorage);
  });
  if (folder) {
    for (const name of readdirSync(folder)) rmSync(join(folder, name));
    for (const [key, text] of left) writeFileSync(join(folder, encodeURIComponent(key)), text);
  }
  await browser.close();
}
