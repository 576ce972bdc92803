// Tests @badged/react, @badged/vue and @badged/element in real pages with a real
// server. Run by go test ./tests -run PackagesBrowser.

import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { build } from "esbuild";
import { createElement } from "react";
import { renderToString as renderReact } from "react-dom/server";
import { renderToString as renderVue } from "vue/server-renderer";
import { launch, newContext } from "./chromium.mjs";
import { Front } from "./front.mjs";
import { Server } from "./server.mjs";
import { after, afterEach, before, beforeEach, test } from "./suite.mjs";

const server = new Server();
let browser;
let context;
let complaints;
let out;
/** The page and its script. */
let served;
const front = new Front(server, ({ url }, response) => {
  const [type, body] = served[url] ?? [];
  if (body !== undefined) response.writeHead(200, { "Content-Type": type }).end(body);
  return body !== undefined;
});

before(async () => {
  await server.start();
  await front.start();
  browser = await launch();
  // Here the bundles find react and vue.
  mkdirSync("node_modules/.tests", { recursive: true });
  out = resolve(mkdtempSync("node_modules/.tests/"));
});

after(async () => {
  await browser?.close();
  front.stop();
  await server.stop();
  rmSync(out, { recursive: true });
});

beforeEach(async () => {
  complaints = [];
  await server.reset();
  context = await newContext(browser);
});

afterEach(async () => {
  await context.close();
  assert.deepEqual(complaints, []);
});

/** The script of a page, in the development build, which checks more. */
async function bundle(name) {
  const { outputFiles } = await build({
    entryPoints: [`browser/apps/${name}-client.mjs`],
    bundle: true,
    write: false,
    define: {
      "process.env.NODE_ENV": '"development"',
      __VUE_OPTIONS_API__: "false",
      __VUE_PROD_DEVTOOLS__: "false",
      __VUE_PROD_HYDRATION_MISMATCH_DETAILS__: "true",
    },
  });
  return outputFiles[0].text;
}

/** A module of an app for the server. */
async function load(name) {
  const outfile = join(out, `${name}.mjs`);
  await build({
    entryPoints: [`browser/apps/${name}.mjs`],
    bundle: true,
    format: "esm",
    platform: "node",
    external: ["react", "vue"],
    outfile,
  });
  return import(pathToFileURL(outfile));
}

const given = () => ({ url: front.url, token: server.token("ada", 3_600) });

/** Opens a page with the origin of the server. */
async function open(html, script) {
  const page = await context.newPage();
  page.sockets = [];
  page.on("websocket", (socket) => page.sockets.push(socket));
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) complaints.push(message.text());
  });
  const body = `<!doctype html><link rel="icon" href="data:,"><body>${html}
    <script>globalThis.given = ${JSON.stringify(given())};</script>
    <script src="/packages.js"></script>`;
  served = { "/packages": ["text/html", body], "/packages.js": ["text/javascript", script] };
  await page.goto(`${front.url}/packages`);
  return page;
}

/** Waits until an element shows a text. If it does not, the error says what the page shows. */
async function shows(page, selector, text) {
  try {
    await page.waitForFunction(
      ([selector, text]) => document.querySelector(selector)?.textContent === text,
      [selector, text],
    );
  } catch (error) {
    const shown = await page.evaluate(() => document.body.innerText.replace(/\s+/g, " "));
    throw new Error(`${selector} never showed "${text}"; the page shows: ${shown}`, {
      cause: error,
    });
  }
}

/** What each framework must show: the same page, made with its package. */
async function live(html, script) {
  // What the server has rendered is shown before any script runs.
  assert.match(html, /<output id="status">stopped<\/output><output id="total">0<\/output>/);
  assert.match(html, /<p id="badge">(<!---->)*<\/p>/);

  // With nothing unread, nothing would tell when the command has taken effect.
  await server.send("ada-ben", "ben", "Hello");
  const page = await open(`<div id="root">${html}</div>`, script);
  await shows(page, "#status", "online");
  await page.waitForFunction(() => document.querySelector("#total").textContent !== "0");
  await page.getByRole("button", { name: "Read all" }).click();
  await shows(page, "#total", "0");
  await shows(page, "#badge", "");
  // The page shows what a command does before the server has it. A message that is sent
  // meanwhile would be read too.
  await server.hasRead("ada");

  await server.send("ada-ben", "ben", "One");
  await shows(page, "#unread", "1");
  await shows(page, "#badge", "11");
  await server.send("ada-ben", "ben", "Two");
  await shows(page, "#total", "2");
  await shows(page, "#badge", "1+2");
  assert.equal(await page.getByRole("img", { name: "2 unread" }).count(), 2);
  // What changed last is listed first, and its count is in the title.
  await page.waitForFunction(() => document.title === "(2)");
  assert.match(await page.textContent("#listed"), /^ada-ben\b/);

  // The thread reads what is unread, and what arrives, while it is on the page.
  await page.getByRole("button", { name: "Thread" }).click();
  await shows(page, "#total", "0");
  const { seq } = await server.send("ada-ben", "ben", "Three");
  await shows(page, "#read", String(seq));
  await shows(page, "#thread", "0 unread");
  await page.getByRole("button", { name: "Thread" }).click();
  await server.send("ada-ben", "ben", "Four");
  await shows(page, "#total", "1");

  // Removed, it closes its connection. Back, it shows the last numbers.
  const connections = page.sockets.filter((socket) => !socket.isClosed());
  assert.equal(connections.length, 1);
  return { page, socket: connections[0] };
}

test("React shows live numbers, hydrated and in StrictMode", async () => {
  const { App } = await load("react");
  const html = renderReact(createElement(App, given()));
  const { page, socket } = await live(html, await bundle("react"));
  const closed = socket.waitForEvent("close");
  await page.getByRole("button", { name: "Whole" }).click();
  await closed;
  assert.equal(await page.title(), "");
  await page.getByRole("button", { name: "Whole" }).click();
  await shows(page, "#status", "online");
  await shows(page, "#total", "1");
});

test("Vue shows live numbers, hydrated", async () => {
  const { createApp } = await load("vue");
  const html = await renderVue(createApp(given()));
  const { page, socket } = await live(html, await bundle("vue"));
  await page.getByRole("button", { name: "Whole" }).click();
  await page.getByRole("button", { name: "Whole" }).click();
  await shows(page, "#total", "1");
  const closed = socket.waitForEvent("close");
  await page.evaluate(() => app.unmount());
  await closed;
});

test("the elements of the README show their counts", async () => {
  const [, example] = readFileSync("element/README.md", "utf8").match(/^```html\n(.*?)^```/ms);
  const page = await open(example, await bundle("element"));
  await page.waitForFunction(() => client.status.state === "online");
  await page.evaluate(() => client.readAll());
  await page.locator("badged-count").first().waitFor({ state: "hidden" });
  await server.send("design-crew", "ben", "One");
  await page.getByRole("img", { name: "1 unread in Design crew" }).waitFor();
  await shows(page, "badged-count", "1");
  assert.equal(await page.locator("badged-count:visible").count(), 2);
});

test("<badged-count> shows live counts, and nothing at 0", async () => {
  const page = await open(
    `<badged-count id="all" most="1"></badged-count>
     <badged-count id="one" conversation="ada-ben" label="{count} from Ben"></badged-count>
     <badged-count id="other" category="nothing"></badged-count>`,
    await bundle("element"),
  );
  await page.waitForFunction(() => client.status.state === "online");
  await page.evaluate(() => client.readAll());
  await page.locator("#all").waitFor({ state: "hidden" });
  await server.send("ada-ben", "ben", "One");
  await shows(page, "#one", "1");
  await server.send("ada-ben", "ben", "Two");
  await shows(page, "#all", "1+");
  assert.equal(await page.getByRole("img", { name: "2 from Ben" }).count(), 1);
  assert.equal(await page.locator("#other").isVisible(), false);

  await page.evaluate(() => document.querySelector("#all").setAttribute("count", "conversations"));
  await shows(page, "#all", "1");
  await page.evaluate(() => document.querySelector("#all").removeAttribute("count"));
  await shows(page, "#all", "1+");

  // An attribute and the client may change at any time.
  await page.evaluate(() => document.querySelector("#other").removeAttribute("category"));
  await shows(page, "#other", "2");
  await page.evaluate(() => defineBadgedCount(undefined));
  await page.locator("#other").waitFor({ state: "hidden" });
  await page.evaluate(() => {
    document.querySelector("#other").client = client;
  });
  await shows(page, "#other", "2");
});
