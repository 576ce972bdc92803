// Tests the SDK in real pages with a real server, for tabs, icons, frozen pages
// and proxies. Run by go test ./tests -run SDKBrowser.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { launch, newContext } from "./chromium.mjs";
import { Front } from "./front.mjs";
import { until } from "./patience.mjs";
import { Server } from "./server.mjs";
import { after, afterEach, before, beforeEach, test } from "./suite.mjs";

const server = new Server();
const script = readFileSync(new URL("../dist/sdk/badged.min.js", import.meta.url), "utf8");
const workerScript = readFileSync(new URL("../dist/sdk/badged-worker.js", import.meta.url), "utf8");
const icon = readFileSync(new URL("../page/icon.svg", import.meta.url), "utf8");
let browser;
let front;
let context;
let errors;

/** Serves the pages of these tests; false for any other path. */
function servePage({ url }, response) {
  if (url === "/icon.svg") {
    response.writeHead(200, { "Content-Type": "image/svg+xml" }).end(icon);
  } else if (url === "/badged.min.js") {
    response.writeHead(200, { "Content-Type": "text/javascript" }).end(script);
  } else if (url === "/badged-worker.js") {
    response.writeHead(200, { "Content-Type": "text/javascript" }).end(workerScript);
  } else if (url === "/badge-token") {
    response.end(server.token("ada", 3_600));
  } else if (url.startsWith("/docs/")) {
    const [, sample] = readFileSync(`..${url}`, "utf8").match(/```html\n(.*?)```/s);
    const html = sample.replace(/url: "[^"]*"/, `url: "${front.url}"`);
    response.writeHead(200, { "Content-Type": "text/html" }).end(html);
  } else if (url.startsWith("/try")) {
    response.writeHead(200, { "Content-Type": "text/html" }).end(pageFor(url));
  } else {
    return false;
  }
  return true;
}

/** A page with a client for ada in the global `client`. */
function pageFor(url) {
  return `<!doctype html><title>Inbox</title>
    <link rel="icon" type="image/svg+xml" href="/icon.svg">
    <script>${script}</script>
    <script>
      appBadges = [];
      Object.defineProperty(navigator, "setAppBadge", { value: async (n) => appBadges.push(n) });
      client = new badged.Badged({
        url: location.origin, user: "ada", token: async () => "${server.token("ada", 3_600)}",
      });
      ends = [badged.showInTitle(client), badged.showOnFavicon(client), badged.showOnApp(client)];
      ${url === "/try" ? "client.start();" : ""}
    </script>`;
}

before(async () => {
  await server.start();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server.stop();
});

beforeEach(async () => {
  errors = [];
  await server.reset();
  front = new Front(server, servePage);
  await front.start();
  context = await newContext(browser);
});

afterEach(async () => {
  await context.close();
  front.stop();
  assert.deepEqual(errors, []);
});

async function open(path = "/try") {
  const page = await context.newPage();
  page.on("pageerror", (error) => errors.push(error.message));
  page.sockets = 0;
  page.streams = 0;
  page.on("websocket", () => page.sockets++);
  page.on("request", (request) => {
    if (request.url().endsWith("/v1/sse")) page.streams++;
  });
  await page.goto(`${front.url}${path}`);
  return page;
}

const online = (page) => page.waitForFunction(() => client.status.state === "online");
const total = (page, n) => page.waitForFunction((n) => client.badge?.total === n, n);
const shown = (page, start) =>
  page.waitForFunction((s) => document.querySelector("link").href.startsWith(s), start);

/** Reads everything, and waits until the total is 0. */
async function readEverything(page) {
  await online(page);
  await page.evaluate(() => client.readAll());
  await total(page, 0);
}

test("a mute reaches a follower, and is stored for the next visit", async () => {
  const page = await open();
  await readEverything(page);
  await server.post("levels", { conversation_id: "lunch", user_id: "ada", level: "none" });
  const muted = (page) =>
    page.waitForFunction(() => client.conversations.get("lunch")?.level === "none");
  await muted(page);
  const second = await open();
  await online(second);
  assert.equal(second.sockets, 0);
  await muted(second);
  await second.close();
  await page.close();
  await muted(await open("/try-later"));
});

test("a page that may not use cookies, and so neither storage nor locks, has live numbers", async () => {
  await context.addInitScript(() => {
    const denied = () => new DOMException("denied", "SecurityError");
    Object.defineProperty(window, "localStorage", {
      get() {
        throw denied();
      },
    });
    navigator.locks.request = async () => {
      throw denied();
    };
  });
  const tabs = [await open(), await open()];
  await readEverything(tabs[0]);
  await server.send("ada-ben", "ben", "Hello");
  for (const page of tabs) {
    await total(page, 1);
    assert.equal(page.sockets, 1);
  }
});

test("forget clears title, icon, app badge and storage in all tabs", async () => {
  const tabs = [await open(), await open()];
  await readEverything(tabs[0]);
  await server.send("ada-ben", "ben", "Hello");
  for (const page of tabs) {
    await page.waitForFunction(() => document.title === "(1) Inbox");
    await shown(page, "data:image/png");
  }
  // The rejection of the dropped command is not handled.
  await tabs[1].evaluate(() => {
    void client.read("ada-ben", 1);
    client.forget();
  });
  for (const page of tabs) {
    await page.waitForFunction(() => document.title === "Inbox" && appBadges.at(-1) === 0);
    await shown(page, `${front.url}/icon.svg`);
    assert.equal(await page.evaluate(() => document.querySelector("link").type), "image/svg+xml");
    assert.equal(await page.evaluate(() => localStorage.length), 0);
    assert.equal(await page.evaluate(() => client.badge), undefined);
  }
});

test("showOnFavicon draws on the original icon, not on an earlier badge", async () => {
  const page = await open();
  await readEverything(page);
  const draw = async (n) => {
    await server.send("ada-ben", "ben", `${n}`);
    await total(page, n);
    await shown(page, "data:image/png");
    return page.evaluate(() => document.querySelector("link").href);
  };
  const once = await draw(1);
  await page.evaluate(() => {
    ends[1]();
    ends[1] = badged.showOnFavicon(client, { color: "#00f" });
  });
  await page.waitForFunction((once) => {
    const { href } = document.querySelector("link");
    return href.startsWith("data:") && href !== once;
  }, once);
  await page.evaluate(() => {
    ends[1]();
    ends[1] = badged.showOnFavicon(client);
  });
  await page.waitForFunction((once) => document.querySelector("link").href === once, once);
  await page.evaluate(() => ends[1]());
  await shown(page, `${front.url}/icon.svg`);
});

test("wrong calls, and stored commands of another release, stop neither this tab nor others", async () => {
  const tabs = [await open(), await open()];
  await readEverything(tabs[0]);
  for (const page of tabs) {
    const wrong = await page.evaluate(() =>
      Promise.allSettled([
        client.read(undefined, 5),
        client.read(123, 5),
        client.markUnread(undefined),
        client.markUnread("x".repeat(5_000)),
        client.readAll(new Event("click")),
      ]).then((all) => all.map(({ reason }) => reason?.name)),
    );
    assert.deepEqual(wrong, Array(5).fill("TypeError"));
  }
  for (const page of tabs) await page.close();
  // What an earlier build could store for ever, and a newer one may.
  const left = await open("/try-later");
  const key = await left.evaluate(() => {
    const id = "5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77";
    const of = { t: "read", id, upToSeq: 5 };
    const key = `badged ${location.origin}/ ada commands`;
    const long = { ...of, conversationId: "x".repeat(5_000) };
    localStorage.setItem(key, JSON.stringify([{ t: "pin", id }, of, long]));
    return key;
  });
  await left.close();
  const again = [await open(), await open()];
  await server.send("ada-ben", "ben", "Hello");
  for (const page of again) {
    await total(page, 1);
    assert.equal(await page.evaluate(() => client.status.state), "online");
    assert.deepEqual(await page.evaluate(() => client.waiting), []);
  }
  assert.equal(await again[0].evaluate((key) => localStorage.getItem(key), key), null);
  await again[1].evaluate(() => client.readAll());
  for (const page of again) await total(page, 0);
});

test("a frozen leader is replaced, and follows when it runs again", async () => {
  const first = await open();
  await readEverything(first);
  const second = await open();
  await online(second);
  assert.deepEqual([first.sockets, second.sockets], [1, 0]);
  await first.evaluate(() =>
    setTimeout(() => {
      // A synchronous request blocks the page until the answer.
      const request = new XMLHttpRequest();
      request.open("GET", "/hold", false);
      request.send();
    }),
  );
  const held = await front.held;
  await server.send("ada-ben", "ben", "Are you there?");
  await total(second, 1);
  assert.equal(second.sockets, 1);
  held.end();
  await total(first, 1);
  await online(first);
  await second.evaluate(() => client.readAll());
  await total(first, 0);
  assert.deepEqual([first.sockets, second.sockets], [1, 1]);
});

test("a leader whose timers are suspended, but which hears messages, is replaced and follows", async () => {
  const first = await open();
  await readEverything(first);
  const second = await open();
  await online(second);
  assert.deepEqual([first.sockets, second.sockets], [1, 0]);
  // As browsers freeze pages, which they do only to hidden ones: here no page is.
  const devTools = await context.newCDPSession(first);
  await devTools.send("Emulation.setVirtualTimePolicy", { policy: "pause" });
  await until("the second tab connects", () => second.sockets === 1);
  await online(second);
  await server.send("ada-ben", "ben", "Are you there?");
  await total(second, 1);
  const follows = (n) =>
    until(`the first tab shows ${n}`, async () => {
      const shows = await first.evaluate(() => [client.badge.total, client.status.state]);
      return shows.join() === `${n},online`;
    });
  await follows(1);
  await second.evaluate(() => client.readAll());
  await follows(0);
  assert.deepEqual([first.sockets, second.sockets], [1, 1]);
});

test("behind a proxy that swallows the upgrade, server-sent events take over and come first next time", async () => {
  front.swallowed = [];
  const page = await open();
  await readEverything(page);
  // The proxy never closes the socket, so the client did not wait for a failure.
  assert.deepEqual([page.sockets, page.streams], [1, 1]);
  assert.deepEqual(front.swallowed, ["/v1/ws"]);
  await page.reload();
  await online(page);
  assert.deepEqual([page.sockets, page.streams], [1, 2]);
  await server.send("ada-ben", "ben", "By another way");
  await total(page, 1);
});

test("while disconnected a read shows at once and stays in waiting", async () => {
  const page = await open();
  await readEverything(page);
  const { seq } = await server.send("ada-ben", "ben", "Hello");
  await total(page, 1);
  await page.evaluate((seq) => {
    client.stop();
    void client.read("ada-ben", seq);
  }, seq);
  await page.waitForFunction(() => document.title === "Inbox");
  assert.deepEqual(await page.evaluate(() => client.waiting.map((c) => c.conversationId)), [
    "ada-ben",
  ]);
  const late = await page.evaluate(
    (seq) =>
      client.read("ada-ben", seq, { signal: AbortSignal.timeout(1) }).catch(({ name }) => name),
    seq,
  );
  assert.equal(late, "TimeoutError");
  await page.evaluate(() => client.start());
  await page.waitForFunction(() => client.waiting.length === 0);
  assert.equal(await page.evaluate(() => client.badge.total), 0);
});

test("an open conversation is read while its page is visible and has the focus, not otherwise", async () => {
  const page = await open();
  await readEverything(page);
  await page.evaluate(() => {
    opened = client.open("ada-ben");
  });
  const readUpTo = (seq) =>
    page.waitForFunction((seq) => client.conversations.get("ada-ben")?.readSeq === seq, seq);
  const seen = await server.send("ada-ben", "ben", "Do you see this?");
  await readUpTo(seen.seq);

  // In a browser without windows every page is visible and has the focus.
  const away = [
    () => {
      document.hasFocus = () => false;
    },
    () => {
      Object.defineProperty(document, "visibilityState", { value: "hidden", configurable: true });
    },
  ];
  for (const leave of away) {
    await page.evaluate(leave);
    const { seq } = await server.send("ada-ben", "ben", "And this?");
    await total(page, 1);
    // A read of the open conversation would reach the server before this one.
    await page.evaluate((seq) => client.read("ada-ben", seq), seen.seq);
    assert.equal(await page.evaluate(() => client.badge.total), 1);
    await page.evaluate(() => {
      const hidden = document.visibilityState === "hidden";
      delete document.hasFocus;
      delete document.visibilityState;
      if (hidden) document.dispatchEvent(new Event("visibilitychange"));
      else window.dispatchEvent(new Event("focus"));
    });
    await readUpTo(seq);
    await total(page, 0);
  }

  await page.evaluate(() => opened.close());
  await server.send("ada-ben", "ben", "Closed");
  await total(page, 1);
});

/** How browsers lack the badge of an app; in a service worker. */
const lacks = {
  missing: () => {
    for (const name of ["setAppBadge", "clearAppBadge"]) delete WorkerNavigator.prototype[name];
  },
  rejecting: () => {
    WorkerNavigator.prototype.setAppBadge = () => Promise.reject(new Error("not installed"));
  },
  throwing: () => {
    WorkerNavigator.prototype.setAppBadge = () => {
      throw new Error("not here");
    };
  },
};

for (const [how, lack] of Object.entries(lacks)) {
  test(`a push shows its notification where setAppBadge is ${how}`, async () => {
    const page = await open("/try-later");
    const started = context.waitForEvent("serviceworker");
    await page.evaluate(async () => {
      await navigator.serviceWorker.register("/badged-worker.js");
      await navigator.serviceWorker.ready;
    });
    const worker = await started;
    await worker.evaluate(lack);
    // The browser without windows permits no notifications.
    await worker.evaluate(() => {
      notified = [];
      registration.showNotification = async (title, { body, tag, data }) => {
        notified.push([title, body, tag, data.n]);
      };
    });
    const devTools = await context.newCDPSession(page);
    const registered = new Promise((resolve) => {
      devTools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
        const ours = registrations.find(({ scopeURL }) => scopeURL.startsWith(front.url));
        if (ours) resolve(ours.registrationId);
      });
    });
    await devTools.send("ServiceWorker.enable");
    await devTools.send("ServiceWorker.deliverPushMessage", {
      origin: front.url,
      registrationId: await registered,
      data: JSON.stringify({
        badged: {
          epoch: "e",
          version: 1,
          number: 1,
          conversation_id: "tea",
          seq: 7,
          data: { n: "1" },
        },
        title: "Ben",
        body: "Tea?",
      }),
    });
    let all = [];
    await until("the notification is shown", async () => {
      all = await worker.evaluate(() => notified);
      return all.length > 0;
    });
    assert.deepEqual(all, [["Ben", "Tea?", "tea/7", "1"]]);
  });
}

test("the sample page of the documentation works, and ignores refusals", async () => {
  const page = await context.newPage();
  page.on("pageerror", (error) => errors.push(error.message));
  const shows = (text) =>
    page.waitForFunction((t) => document.querySelector("#total").textContent === t, text);
  await page.goto(`${front.url}/docs/howto/show-a-badge.md`);
  await server.send("ada-ben", "ben", "Hello");
  await page.waitForFunction(() => Number(document.querySelector("#total").textContent) > 0);
  await page.goto(`${front.url}/docs/clients-web.md`);
  await page.locator("#offline").waitFor({ state: "hidden" });
  await page.getByRole("button", { name: "Read all" }).click();
  await shows("none");
  await server.send("ada-ben", "ben", "Hello");
  await shows("1");
  await page.evaluate(() => client.stop());
  await page.getByRole("button", { name: "Read all" }).click();
  await shows("none");
  // The page does not handle the rejection of the dropped command.
  await page.evaluate(() => client.forget());
  // The browser reports unhandled rejections before the next task.
  await page.evaluate(() => new Promise((resolve) => setTimeout(resolve)));
});
