// Tests the SDK and the page of the demo in a real browser with a real server.

import assert from "node:assert/strict";
import { barriers, Demo, newContext, shoot } from "./chromium.mjs";
import { browser, context, readEverything, server } from "./demo.mjs";
import { test } from "./suite.mjs";

test("a message raises the badges, reading lowers one of them", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("lunch", "ada", "@Ben lunch?");
  await server.send("lunch", "ada", "At noon");
  for (const [user, total] of [
    ["ada", ""],
    ["ben", 2],
    ["chloe", 2],
    ["dev", ""],
  ]) {
    await demo.total(user, total);
  }
  await demo.phone("ben").getByText("1 mention", { exact: true }).waitFor();
  await demo.row("ben", "Lunch & coffee").click();
  await demo.total("ben", "");
  await demo.total("chloe", 2);
  assert.deepEqual(demo.complaints, []);
});

test("all badges count conversations instead of messages, at once", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("lunch", "ada", "Lunch?");
  await server.send("lunch", "ada", "At noon");
  await server.send("ada-ben", "ada", "You too?");
  await demo.total("ben", 3);
  await demo.page.getByRole("button", { name: "Count conversations" }).click();
  await demo.total("ben", 2);
  await demo.total("chloe", 1);
  await demo
    .phone("ben")
    .getByText("2 conversations unread", { exact: true })
    .waitFor({ state: "attached" });
  await demo.phone("ben").getByText("with 3 messages").waitFor();
  await server.send("ada-ben", "ada", "Bring Chloe");
  await demo.phone("ben").getByText("with 4 messages").waitFor();
  await demo.total("ben", 2);
  await demo.row("ben", "Lunch & coffee").click();
  await demo.total("ben", 1);
  await demo.page.getByRole("button", { name: "Count messages" }).click();
  await demo.total("ben", 2);
  assert.deepEqual(demo.complaints, []);
});

test("title, favicon and app show the total of the phone in use", async () => {
  const demo = new Demo(await context.newPage(), server.url);
  await demo.page.addInitScript(() => {
    globalThis.appBadges = [];
    Object.defineProperty(navigator, "setAppBadge", {
      value: async (count) => globalThis.appBadges.push(count),
    });
  });
  await demo.goto();
  await readEverything(demo);
  await demo.phone("ben").getByRole("switch").focus();
  await server.send("ada-ben", "ada", "Got a minute?");
  await demo.page.waitForFunction(() => document.title.startsWith("(1) "));
  await demo.page.waitForFunction(() =>
    document.querySelector("link[rel=icon]").href.startsWith("data:image/png"),
  );
  assert.equal(await demo.page.evaluate(() => globalThis.appBadges.at(-1)), 1);
  await demo.phone("ben").getByRole("button", { name: "Read all" }).click();
  await demo.page.waitForFunction(() => !document.title.startsWith("("));
  await demo.page.waitForFunction(() =>
    document.querySelector("link[rel=icon]").href.endsWith("icon.svg"),
  );
  assert.equal(await demo.page.evaluate(() => globalThis.appBadges.at(-1)), 0);
});

test("two tabs share the connections, and the second takes over from the first", async () => {
  const first = await Demo.open(context, server.url);
  await readEverything(first);
  const second = await Demo.open(context, server.url);
  assert.equal(first.sockets.length, 4);
  assert.equal(second.sockets.length, 0);
  await server.send("ada-ben", "ada", "Sure");
  await first.total("ben", 1);
  await second.total("ben", 1);

  // Commands of the tab without a connection count too.
  await second.row("ben", "Ada").click();
  await first.total("ben", "");
  await second.total("ben", "");

  await first.page.close();
  // Until then the second shows the state from the first.
  while (second.sockets.length < 4) await second.page.waitForEvent("websocket");
  await second.online(4);
  await server.send("ada-ben", "ben", "Thanks");
  await second.total("ada", 1);
  assert.equal(second.sockets.length, 4);
  assert.deepEqual(second.complaints, []);
});

test("a phone that was offline shows what it missed, and its pending commands count once", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("chloe-dev", "dev", "Did the numbers add up?");
  await demo.total("chloe", 1);
  const { seq } = await server.send("chloe-dev", "dev", "To the last one");
  await demo.total("chloe", 2);

  const chloe = demo.phone("chloe");
  await chloe.getByText("Online", { exact: true }).click();
  await chloe.getByText("Offline", { exact: true }).first().waitFor();
  await demo.row("chloe", "Dev").click();
  await chloe.getByText("1 waiting").waitFor();
  await demo.total("chloe", "");
  await server.send("lunch", "ben", "Coffee?");
  await demo.total("ada", 1);
  await demo.total("chloe", "");

  await chloe.getByText("Online", { exact: true }).click();
  await demo.total("chloe", 1);
  await demo.logged(`Chloé read Chloé and Dev up to ${seq}`);
});

test("a recall, a mute and a mark change the badge", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await demo.row("ada", "Ben").click();
  const ada = demo.phone("ada");
  for (const text of ["One", "Two"]) {
    await ada.getByRole("textbox").fill(text);
    await ada.getByRole("button", { name: "Send", exact: true }).click();
  }
  await demo.total("ben", 2);
  await ada.getByRole("button", { name: "Recall the message Two" }).click();
  await demo.total("ben", 1);
  await ada.getByText("Message recalled").first().waitFor();

  const ben = demo.phone("ben");
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");
  await ben.getByRole("button", { name: "Mark unread" }).click();
  await demo.total("ben", 1);
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");

  // From a message on: recalled ones and the user's own do not count.
  await server.send("ada-ben", "ada", "Four");
  await server.send("ada-ben", "ben", "Mine");
  await server.send("ada-ben", "ada", "Five");
  await ben.getByRole("button", { name: "Unread from here: Five" }).waitFor({ state: "attached" });
  await demo.total("ben", "");
  await ben.getByRole("button", { name: "Unread from here: One" }).click();
  await demo.total("ben", 3);
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");
  await ben.getByRole("button", { name: "Unread from here: Five" }).click();
  await demo.total("ben", 1);
  await demo.row("ben", "Ada").click();
  await demo.total("ben", "");
  await ben.getByRole("button", { name: /^Now everything counts/ }).click();
  await ben.getByRole("button", { name: /^Now only mentions count/ }).click();
  await ben.getByRole("button", { name: /^Now muted/ }).waitFor();
  await ben.getByRole("button", { name: "Back to" }).click();
  await server.send("ada-ben", "ada", "Three");
  await demo.row("ben", "Ada").locator(".pill.is-quiet").waitFor();
  await demo.total("ben", "");
  await demo.row("ben", "Ada").click();
  await ben.getByRole("button", { name: /^Now muted/ }).click();
  await ben.getByRole("button", { name: /^Now everything counts/ }).waitFor();
});

test("a workspace counts its channels and threads, what is muted is grey, and opening the bell sees it", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const dev = demo.phone("dev");
  const tab = (name) =>
    dev.getByRole("group", { name: "Workspaces" }).getByRole("button", { name });
  await server.send("design-crew", "ada", "Morning!");
  await server.send("design-crew/icon", "ada", "Round or square?");
  await server.send("random", "ada", "There is cake"); // Dev has muted the channel
  await server.send("hikes", "ada", "The lake?");
  await server.publish("message.delivered", {
    conversation_id: "reactions",
    seq: Date.now(),
    user_ids: ["dev"],
    category: "bell/reactions",
  });
  await demo.total("dev", 4);
  await tab(/^Acme\s*2\s*, 1 muted$/).click();
  for (const channel of [/^# design2$/, /^# random1, 1 muted$/]) {
    await dev.locator(".channel", { hasText: channel }).waitFor();
  }
  assert.equal(await demo.row("dev", "Sunday hikes").isVisible(), false);
  await shoot(demo.page, "workspaces");

  await tab(/^Bell\s*1$/).click();
  await tab(/^Bell$/).waitFor();
  await demo.total("dev", 4); // seen, not read
  await demo.row("dev", "Reactions").click();
  await demo.total("dev", 3);
  assert.deepEqual(demo.complaints, []);
});

test("an event shows the badges that it changed, and why others did not change", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  const { seq } = await server.send("design-crew", "ada", "@Ben the contrast is too low");
  await demo.total("ben", 1);
  const event = demo.page.locator(".event", { hasText: `Ada wrote message ${seq} in Design crew` });
  const button = event.getByRole("button");
  await button.click();
  const change = (name) => event.locator(".change", { hasText: name });
  await change("Ben").getByText("Design crew: 0 → 1 unread").waitFor();
  const text = async (name) => (await change(name).locator(".change-total").innerText()).trim();
  assert.equal(await text("Ben"), "0 → 1");
  assert.equal(await event.locator(".change").count(), 3); // the sender is not among them
  await demo.page.locator("#phone-ben.is-changed").waitFor();
  assert.equal(await demo.page.locator("#phone-ada.is-changed").count(), 0);
  await shoot(demo.page, "changes");
  await button.focus();
  await demo.page.keyboard.press("Enter");
  await event.locator(".changes").waitFor({ state: "detached" });
  assert.equal(await demo.page.locator(".phone.is-changed").count(), 0);

  // A muted conversation has one unread message more, and the badge stays.
  const level = (level) =>
    server.post("levels", { conversation_id: "design-crew", user_id: "dev", level });
  await level("none");
  const muted = await server.send("design-crew", "ada", "Shipping it");
  await demo.total("ben", 2);
  const next = demo.page.locator(".event", {
    hasText: `Ada wrote message ${muted.seq} in Design crew`,
  });
  await next.getByRole("button").click();
  const dev = next.locator(".change", { hasText: "Dev" });
  await dev.getByText("1 → 2 unread, muted").waitFor();
  assert.equal(await dev.locator(".change-total").innerText(), "stays 0");
  await level("all");
  assert.deepEqual(demo.complaints, []);
});

test("everything can be done with the keyboard", async () => {
  const demo = await Demo.open(context, server.url);
  await readEverything(demo);
  await server.send("ada-ben", "ada", "Hello");
  await demo.total("ben", 1);
  const row = demo.row("ben", "Ada");
  await row.focus();
  await demo.page.keyboard.press("Enter");
  await demo.total("ben", "");
  const focused = () => demo.page.evaluate(() => document.activeElement.getAttribute("aria-label"));
  assert.equal(await focused(), "Back to Ben's conversations");
  for (let presses = 0; (await focused()) !== "Message to Ada"; presses++) {
    assert(presses < 40, "the field to write in cannot be reached");
    await demo.page.keyboard.press("Tab");
  }
  await demo.page.keyboard.type("Hi, by keyboard");
  await demo.page.keyboard.press("Enter");
  await demo.total("ada", 1);
  await demo.page.keyboard.press("Escape");
  assert.equal(await row.evaluate((element) => element === document.activeElement), true);
});

for (const [colorScheme, width, height] of [
  ["light", 1440, 900],
  ["dark", 1366, 768],
  ["light", 1280, 720],
  ["dark", 390, 844],
]) {
  test(`it fits ${width} pixels, ${colorScheme}`, async () => {
    const narrow = await newContext(browser, { viewport: { width, height }, colorScheme });
    try {
      const page = await narrow.newPage();
      const demo = new Demo(page, server.url);
      await demo.goto();
      await server.send("design-crew", "dev", "@Ada can you look at the new icon?");
      await page.getByText("@Ada can you look at the new icon?").first().waitFor();
      await page.getByText("badged keeps the unread badges of a chat exact").waitFor();
      const wide = await page.evaluate(() => document.documentElement.scrollWidth);
      assert(wide <= width, `the page is ${wide} pixels wide`);
      const outside = await page.evaluate(() =>
        [...document.querySelectorAll(".phone")].flatMap((phone) => {
          const { left, right } = phone.getBoundingClientRect();
          return [...phone.querySelectorAll("button, .switch, .parts, .tab")]
            .map((e) => [e.textContent, e.getBoundingClientRect()])
            .filter(([, r]) => r.width > 0 && (r.left < left - 0.5 || r.right > right + 0.5))
            .map(([text]) => `${phone.id}: ${text}`);
        }),
      );
      assert.deepEqual(outside, [], "these overlap what is beside the phone");
      const unnamed = await page.evaluate(() =>
        [...document.querySelectorAll("button, input, a")]
          .filter((e) => !e.ariaLabel && !e.textContent.trim() && !e.labels?.length)
          .map((e) => e.outerHTML.slice(0, 80)),
      );
      assert.deepEqual(unnamed, [], "a screen reader has no names for these");
      await page.locator(".event-button").first().click();
      await page.locator(".change").first().waitFor();
      assert.deepEqual(await barriers(page), []);
      await shoot(page, `${colorScheme}-${width}`);
    } finally {
      await narrow.close();
    }
  });
}
