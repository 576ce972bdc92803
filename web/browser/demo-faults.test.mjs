// Tests the room of the demo with many members, and that its page recovers when something is cut,
// crashes, ends or is closed.

import assert from "node:assert/strict";
import { Demo, shoot } from "./chromium.mjs";
import { context, readEverything, server } from "./demo.mjs";
import { until } from "./patience.mjs";
import { test } from "./suite.mjs";

/** The panel of the room, and what the test does with it. */
function roomOf(demo) {
  const panel = demo.page.locator("#room");
  return {
    panel,
    slider: panel.getByRole("slider", { name: "Members of the town hall" }),
    has: (members) => panel.locator(".room-members").getByText(members, { exact: true }).waitFor(),
    says: (text) => panel.getByRole("status").getByText(text).waitFor(),
    /** Presses a button, and waits until what it began has ended. */
    async press(name) {
      await panel.getByRole("button", { name, exact: true }).click();
      await panel.locator(".room-button:enabled").first().waitFor();
    },
    /** Rows of a message to the room and to a group, and their milliseconds. */
    async costs() {
      const texts = await panel.locator("tbody td").allInnerTexts();
      return texts.map((text) => Number.parseFloat(text.replace(",", "")));
    },
  };
}

class Signal {
  given = new Promise((resolve) => {
    this.give = resolve;
  });
}

test("the icon of a closed app follows by push, on all pages, and the app continues", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("lunch", "ada", "Lunch?");
  await demo.total("ben", 1);
  const ben = demo.phone("ben");
  await ben.getByRole("button", { name: "Close app" }).click();
  await demo.page.getByText("3 of 4 phones online, 1 closed").waitFor();
  await demo.total("ben", 1); // the icon keeps its number
  assert.equal(await ben.getByRole("switch").isDisabled(), true);
  assert.equal(await demo.row("ben", "Lunch & coffee").isVisible(), false);
  // Nothing but pushes reaches the phone: this page has no other word of Ben's total.
  const lunch = await server.send("lunch", "ada", "At noon");
  const direct = await server.send("ada-ben", "ada", "You too?");
  await demo.total("ben", 3);
  await ben.getByText("3 unread", { exact: true }).waitFor({ state: "attached" });
  await ben.getByText(/^\d+ push/).waitFor();
  await shoot(demo.page, "closed");
  // Another page shows the same phone.
  const other = new Demo(await context.newPage(), server.url);
  await other.page.goto(server.url);
  await other.online(3);
  await other.total("ben", 3);
  // It is read on another device: a push lowers the number, and clears it.
  await server.read("ben", "ada-ben", direct.seq);
  await demo.total("ben", 2);
  await other.total("ben", 2);
  await server.read("ben", "lunch", lunch.seq);
  await demo.total("ben", "");
  await server.send("ada-ben", "ada", "Tomorrow?");
  await demo.total("ben", 1);
  await other.phone("ben").getByRole("button", { name: "Tap to open" }).click();
  for (const page of [demo, other]) {
    await page.online(4);
    await page.total("ben", 1);
    await page.row("ben", "Ada").waitFor();
  }
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");
  await other.total("ben", "");
  assert.deepEqual(demo.complaints, []);
});

test("a push sets the badge of the app by its service worker", async () => {
  const started = context.waitForEvent("serviceworker");
  const demo = await Demo.open(context, server.url);
  const worker = await started;
  // The browser without windows ends a worker that sets the badge: it has no icons.
  await worker.evaluate(() => {
    globalThis.badges = [];
    for (const name of ["setAppBadge", "clearAppBadge"]) {
      Object.defineProperty(navigator, name, {
        value: async (number = 0) => globalThis.badges.push(number),
      });
    }
  });
  const devTools = await context.newCDPSession(demo.page);
  const registered = new Promise((resolve) => {
    devTools.on("ServiceWorker.workerRegistrationUpdated", ({ registrations }) => {
      const ours = registrations.find(({ scopeURL }) => scopeURL.startsWith(server.url));
      if (ours) resolve(ours.registrationId);
    });
  });
  await devTools.send("ServiceWorker.enable");
  const registrationId = await registered;
  const push = (epoch, version, number) =>
    devTools.send("ServiceWorker.deliverPushMessage", {
      origin: new URL(server.url).origin,
      registrationId,
      data: JSON.stringify({ badged: { epoch, version, number } }),
    });
  const shows = async (...badges) => {
    let got;
    await until(`the app gets its badge ${badges.length} times`, async () => {
      got = await worker.evaluate(() => globalThis.badges);
      return got.length >= badges.length;
    });
    assert.deepEqual(got, badges);
  };
  await push("a", 7, 3);
  await shows(3);
  await push("a", 6, 9); // late
  await push("a", 7, 3); // again
  await push("a", 8, 0);
  await shows(3, 0);
  await push("b", 1, 5);
  await shows(3, 0, 5);
});

test("the last badge shows before the connection", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("ada-ben", "ada", "Call you after the stand-up");
  await demo.total("ben", 1);
  await demo.page.reload();
  await context.routeWebSocket(/./, () => {}); // accepts, and never sends a frame
  await context.route(/\/v1\/sse/, () => {}); // never answers
  await demo.page.reload();
  await demo.total("ben", 1);
  await demo.page.getByText("0 of 4 phones online").waitFor();
});

test("a message to the room costs the same for many members", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const room = roomOf(demo);
  await room.has("5");
  await room.says("Ada, Ben and 3 guests");
  await room.press("Post");
  const [fewRows] = await room.costs();

  // The first request takes until the slider has moved on. No later one overtakes it, and
  // its answer does not move the slider back.
  const asked = [];
  let [open, overtaken] = [0, false];
  const [first, released] = [new Signal(), new Signal()];
  await demo.page.route("**/demo/room", async (route) => {
    asked.push(route.request().postDataJSON().members);
    overtaken ||= open > 0;
    open++;
    first.give();
    if (asked.length === 1) await released.given;
    const response = await route.fetch();
    open--;
    await route.fulfill({ response });
  });
  await room.slider.focus();
  await demo.page.keyboard.press("End");
  await first.given;
  await demo.page.keyboard.press("ArrowLeft");
  assert.equal(await room.slider.getAttribute("aria-valuetext"), "50,000 members");
  released.give();
  await room.says("guests are joining");
  await shoot(demo.page, "room-joining");
  // The phones stay live meanwhile.
  await server.send("ada-ben", "ada", "Are you coming?");
  await demo.total("ben", 2);
  assert.equal(await room.slider.getAttribute("aria-valuetext"), "50,000 members");
  for (let presses = 0; presses < 4; presses++) await demo.page.keyboard.press("ArrowLeft");
  await room.has("2,000");
  await room.says("Ada, Ben and 1,998 guests");
  assert.deepEqual(asked, [100_000, 50_000, 20_000, 10_000, 5_000, 2_000]);
  assert(!overtaken, "a size was sent before the last was answered");

  await room.press("Post");
  await demo.total("ada", 2);
  const [rows, , ms] = await room.costs();
  assert(rows > 4 && rows < 40 && Math.abs(rows - fewRows) < 10, `${fewRows}, then ${rows} rows`);
  assert(ms > 0);
  await room.panel.getByText("not measured").waitFor();
  await room.press("Send to a group");
  await demo.row("ada", "Town hall (group)").waitFor();
  await demo.total("ada", 3);
  const [, copiedRows, , copiedMs] = await room.costs();
  assert(copiedRows >= 2 * 1999 && copiedRows < 2 * 1999 + 100, `${copiedRows} rows`);
  assert(copiedMs > 0);
  // An event of the room shows the people whom it changed.
  const event = demo.page.locator(".event", { hasText: "wrote message 2 in Town hall" });
  await event.getByRole("button").click();
  const ben = event.locator(".change", { hasText: "Ben" });
  await ben.getByText("Town hall: 1 → 2 unread").waitFor();

  // People write, read and recall there as in other conversations.
  const phone = demo.phone("ben");
  await demo.row("ben", "Town hall").click();
  await demo.total("ben", 2);
  await phone.getByRole("textbox").fill("Hello everybody");
  await phone.getByRole("button", { name: "Send", exact: true }).click();
  await demo.total("ada", 4);
  await phone.getByRole("button", { name: "Recall the message Hello everybody" }).click();
  await demo.total("ada", 3);
  await phone.getByRole("button", { name: "Back to" }).click();

  await room.press("Post 20");
  await room.says("The last of 20 messages was on a phone after");
  await demo.total("ada", 23);
  await shoot(demo.page, "room");

  await room.slider.focus();
  await demo.page.keyboard.press("Home");
  await room.has("5");
  assert.deepEqual(demo.complaints, []);
});

test("the room says that the database or the server is away, and recovers", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const room = roomOf(demo);
  await room.slider.focus();
  await demo.page.keyboard.press("End");
  await room.says("guests are joining");
  server.crashDatabase();
  await room.says("The database does not answer. The demo tries again.");
  await shoot(demo.page, "room-trouble");
  await demo.page.keyboard.press("Home");
  await room.says("Ada, Ben and 3 guests");

  await server.stop();
  await room.says("The demo does not answer. The page tries again.");
  await room.slider.focus();
  await demo.page.keyboard.press("End");
  await demo.page.waitForFunction(() => document.querySelector(".room-slider").value === "0");
  await server.start();
  await room.says("Ada, Ben and 3 guests");
  await demo.online(4);
  await room.press("Post");
  await demo.total("ada", 1);
});

test("without a phone, the room says that no phone got a message", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const room = roomOf(demo);
  for (const user of ["ada", "ben"]) {
    await demo.phone(user).getByText("Online", { exact: true }).click();
    await demo.phone(user).getByText("Offline", { exact: true }).first().waitFor();
  }
  await room.press("Post");
  await room.says("Sent, and no phone got it: take that of Ada or Ben online");
  const [rows, , ms] = await room.costs();
  assert(rows > 4 && Number.isNaN(ms), `${rows} rows, ${ms} ms`);
  for (const user of ["ada", "ben"]) {
    await demo.phone(user).getByText("Online", { exact: true }).click();
    await demo.total(user, 1);
  }
});

test("while the bus is cut, outdated numbers are marked, and recover", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const ben = demo.phone("ben");
  await demo.page.getByRole("button", { name: "Cut the bus link" }).click();
  await demo.page.getByText("bus link cut", { exact: true }).waitFor();
  // In one look: reconciliation may heal it at any time, also before the page is drawn.
  let boxes = null;
  let sent = 0;
  const handle = await ben.elementHandle();
  while (boxes === null) {
    assert.ok(++sent <= 10, "each of ten numbers was healed unseen");
    await server.post("bus", { cut_ms: 60_000 }); // the button's cut may have ended
    await server.send("lunch", "ada", "Coffee machine is alive again");
    boxes = await demo.page
      .waitForFunction(
        ([phone, said]) => {
          const label = phone.querySelector(".behind");
          if (!label?.textContent.includes(said) || !phone.classList.contains("is-behind")) {
            return null;
          }
          return [label, phone].map((element) => {
            const { x, width } = element.getBoundingClientRect();
            return { x, width };
          });
        },
        [handle, `Stale: now ${sent}`],
        { timeout: 12_000 },
      )
      .catch((error) => {
        if (error.name !== "TimeoutError") {
          throw error;
        }
        return null;
      });
  }
  const [label, phone] = await boxes.jsonValue();
  assert.ok(label.x + label.width < phone.x + phone.width, "the label fits into the phone");
  await shoot(demo.page, "stale");
  // Reconciliation heals it, and the phone shows that.
  await demo.total("ben", sent);
  await ben.locator(".behind").waitFor({ state: "hidden" });
  assert.doesNotMatch(await ben.getAttribute("class"), /is-behind/);
  await demo.page.getByText("Ben caught up", { exact: true }).first().waitFor();
  await server.post("bus", { cut_ms: 0 });
  await demo.page.getByRole("button", { name: "Cut the bus link" }).waitFor();
});

test("no badge waits for a transaction that stays open", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await demo.page.getByRole("button", { name: "Open a long transaction" }).click();
  await demo.page.getByText("long transaction opened", { exact: true }).waitFor();
  const { seq } = await server.send("lunch", "ada", "Still counting");
  await demo.total("ben", 1);
  await demo.logged(`Ada wrote message ${seq} in Lunch & coffee`);
  await shoot(demo.page, "transaction");
  await demo.row("ben", "Lunch & coffee").click();
  await demo.total("ben", "");
  assert((await server.get("transaction")).open_ms > 0, "the transaction has ended");
  await demo.page.getByRole("button", { name: /^End the transaction/ }).click();
  await demo.page.getByText("long transaction ended", { exact: true }).waitFor();
  assert.equal((await server.get("transaction")).open_ms, 0);
  await demo.page.getByRole("button", { name: "Open a long transaction" }).waitFor();
  assert.deepEqual(demo.complaints, []);
});

test("updates lost by the bus are reconciled", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await demo.page.getByRole("button", { name: "Cut the bus link" }).click();
  await demo.page.getByText("bus link cut", { exact: true }).waitFor();
  await server.send("lunch", "ada", "Ten minutes");
  await demo.total("ben", 1);
  const { lost } = await server.get("bus");
  assert(lost > 0, "the bus lost nothing: it was not cut");
  await demo.page.getByRole("button", { name: /^Restore the bus link/ }).click();
  await demo.page.getByText("bus link restored").first().waitFor();
});

test("the phones recover from a restart of the server", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.stop();
  await demo.page.getByText("Reconnecting…").first().waitFor();
  await server.start();
  await demo.online(4);
  await server.send("chloe-dev", "chloe", "Let me check");
  await demo.total("dev", 1);
});

test("if WebSockets are blocked, server-sent events and requests replace them", async () => {
  await context.routeWebSocket(/./, (socket) => socket.close());
  const demo = new Demo(await context.newPage(), server.url);
  const requests = [];
  demo.page.on("request", (request) => requests.push(new URL(request.url()).pathname));
  await demo.goto();
  assert.equal(requests.filter((path) => path === "/v1/sse").length, 4);
  await readEverything(demo);
  await server.send("ada-ben", "ada", "Are you through?");
  await demo.total("ben", 1);
  const { seq } = await server.send("ada-ben", "ada", "By another way");
  await demo.total("ben", 2);
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");
  await demo.logged(`Ben read Ada and Ben up to ${seq}`);
  assert(requests.includes("/v1/commands"));

  // The server announces its shutdown on the streams, which resume once it is back.
  await server.stop();
  await demo.page.getByText("Reconnecting…").first().waitFor();
  await server.start();
  await demo.online(4);
  await server.send("chloe-dev", "chloe", "Still there?");
  await demo.total("dev", 1);
});

test("an expired token is replaced, and one about to expire is renewed", async () => {
  const demo = new Demo(await context.newPage(), server.url);
  // The lifetimes of ada's first tokens, in seconds. The page fetches the first, the client the
  // next before its first connection. The last is renewed in the last quarter of its life, which
  // leaves enough time.
  const seconds = [-60, -60, 20];
  await demo.page.route("**/demo/users", async (route) => {
    const response = await route.fetch();
    const body = await response.json();
    const ada = body.users.find(({ user_id }) => user_id === "ada");
    const left = seconds.shift();
    if (left !== undefined) ada.token = server.token("ada", left);
    await route.fulfill({ response, json: body });
  });
  const refreshed = new Promise((resolve) => {
    demo.page.on("websocket", (socket) => {
      socket.on("framesent", ({ payload }) => {
        if (String(payload).startsWith('{"t":"auth"')) resolve(socket);
      });
    });
  });
  await demo.goto();
  assert(demo.sockets.length > 4, "no connection was refused for its token");
  const socket = await refreshed;
  assert.equal(socket.isClosed(), false);
  await readEverything(demo);
  await server.send("ada-ben", "ben", "👍");
  await demo.total("ada", 1);
  assert.equal(socket.isClosed(), false);
});
