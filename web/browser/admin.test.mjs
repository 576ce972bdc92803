// The admin page in a real browser, with a real server that go test ./tests -run AdminBrowser
// has prepared: two dead letters, of which one is understood when it is retried; bob and ann,
// whose rows are wrong; and somebody who reads the tables of ann's partition all the time.

import assert from "node:assert/strict";
import { mkdirSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, afterEach, before, beforeEach, test } from "node:test";
import { launch, patient } from "./chromium.mjs";

const { BADGED_URL: url, BADGED_ADMIN_KEY: key, BADGED_ADMIN_PARTITION: bobs } = process.env;
if (!url || !key || !bobs) {
  throw new Error("BADGED_URL is not set: go test ./tests -run AdminBrowser does");
}

/** Screenshots are kept for who wants to look at them. */
const screenshots =
  process.env.BADGED_SCREENSHOTS ?? join(tmpdir(), `badged-screenshots-${process.getuid()}`);

let browser;
let context;
let page;
let complaints;

before(async () => {
  mkdirSync(screenshots, { recursive: true });
  browser = await launch();
});

after(() => browser?.close());

beforeEach(async () => {
  context = patient(await browser.newContext({ viewport: { width: 1440, height: 900 } }));
  page = await newPage(context);
});

afterEach(async () => {
  await context.close();
  // But for the browser's own words on what was refused on purpose, or away.
  assert.deepEqual(
    complaints.filter((text) => !text.startsWith("Failed to load resource")),
    [],
  );
});

async function newPage(context) {
  const page = await context.newPage();
  complaints = [];
  page.on("pageerror", (error) => complaints.push(error.message));
  page.on("console", (message) => {
    if (message.type() === "error") complaints.push(message.text());
  });
  return page;
}

async function signIn(page, with_ = key) {
  await page.goto(`${url}/admin/`);
  await page.getByLabel("Operator key").fill(with_);
  await page.keyboard.press("Enter");
}

/** Signs in and opens a view. */
async function open(page, view) {
  await signIn(page);
  await page.getByRole("link", { name: view }).click();
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
}

function shoot(page, name) {
  return page.screenshot({ path: join(screenshots, `admin-${name}.png`), fullPage: true });
}

test("a wrong key is refused, a good one opens the page and stays in the tab", async () => {
  await signIn(page, "wrong");
  await page.getByText("The key is not one of an admin.").waitFor();
  await shoot(page, "wrong-key");
  await page.getByLabel("Operator key").fill(key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
  assert(!page.url().includes(key));
  await page.reload();
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.getByLabel("Operator key").waitFor();
  assert.equal(await page.evaluate(() => sessionStorage.length), 0);
});

test("the overview has the partitions, the processes and the last hour", async () => {
  await signIn(page);
  const partitions = page.getByRole("region", { name: "Partitions" });
  await partitions.locator("tbody tr").nth(15).waitFor();
  assert.equal(await partitions.getByText("nobody").count(), 0);
  await page.getByText("every partition has an owner").waitFor();
  const processes = page.getByRole("region", { name: "Processes" });
  await processes.getByText("api, projector, gateway").waitFor();
  await processes.getByText("100 a user").waitFor();
  await page.locator(".uplot canvas").first().waitFor();
  const connections = page.locator("figure", { hasText: "Connections" });
  await connections.locator("dd").first().getByText("2", { exact: true }).waitFor();
  await shoot(page, "overview");
});

test("a badge is explained message by message, and as of a time", async () => {
  await open(page, "Users");
  await page.getByLabel("User", { exact: true }).fill("cem");
  await page.keyboard.press("Enter");
  const badge = page.getByRole("region", { name: "Badge of cem" });
  await badge.getByText("4", { exact: true }).waitFor();
  await badge.getByText("The tables are what the log says").waitFor();
  const lunch = page.locator(".card", { hasText: "lunch" });
  for (const id of ["lunch/1", "lunch/2", "lunch/3"]) await lunch.getByText(id).waitFor();
  await shoot(page, "explain");

  const slider = page.getByLabel("Travel in time");
  await slider.focus();
  await page.keyboard.press("Home");
  await page.getByText("Nothing has ever happened to this user by then.").waitFor();
  assert.notEqual(await page.getByLabel("As of").inputValue(), "");
  await page.getByRole("button", { name: "Now" }).click();
  await badge.getByText("4", { exact: true }).waitFor();

  await page.getByLabel("User", { exact: true }).fill("nobody");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("Nothing has ever happened to this user.").waitFor();
  await page.getByLabel("User", { exact: true }).fill("x".repeat(200));
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("user id must have at most 128 bytes").waitFor();
});

test("verifying finds what is wrong, and rebuilding a partition mends it", async () => {
  await open(page, "Jobs");
  await page.getByLabel("Partition").first().fill(bobs);
  await page.getByRole("button", { name: "Verify" }).click();
  const verified = page.locator(".card", { hasText: `Verification of partition ${bobs}` });
  await verified.getByText("compared: 3 differences").waitFor();
  await verified.locator("summary").click();
  await verified.getByText("bob: total is 7 in the table, 3 by the log").waitFor();

  await page.getByLabel("Partition").nth(1).fill(bobs);
  await page.getByRole("button", { name: "Rebuild" }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Rebuild" }).click();
  const rebuilt = page.locator(".card", { hasText: `Rebuild of partition ${bobs}` });
  await rebuilt.getByText("1 user repaired").waitFor();
  await shoot(page, "jobs");
});

test("a rebuild shows how far it is, and is canceled", async () => {
  await open(page, "Jobs");
  await page.getByRole("button", { name: "Rebuild" }).click();
  const dialog = page.getByRole("dialog", { name: "Rebuild all partitions?" });
  await dialog.getByRole("button", { name: "Keep it" }).click();
  await page.getByRole("button", { name: "Rebuild" }).click();
  await dialog.getByRole("button", { name: "Rebuild" }).click();
  const job = page.locator(".card", { hasText: "Rebuild of all partitions" });
  await job.getByText("waits for").waitFor();
  assert((await job.getByRole("progressbar").getAttribute("value")) > 0);
  await page.locator(".nav-badge", { hasText: "1" }).first().waitFor();
  await shoot(page, "rebuilding");

  // There is one at a time.
  await page.getByRole("button", { name: "Rebuild" }).click();
  await dialog.getByRole("button", { name: "Rebuild" }).click();
  const refused = page.getByRole("dialog", { name: "That did not work" });
  await refused.getByText("another rebuild is under way").waitFor();
  await shoot(page, "refused");
  await page.keyboard.press("Escape");
  await job.getByRole("button", { name: "Cancel job" }).click();
  await job.getByText("canceled", { exact: true }).waitFor();
});

test("a user whose table is wrong is mended from the explanation", async () => {
  await open(page, "Users");
  await page.getByLabel("User", { exact: true }).fill("ann");
  await page.keyboard.press("Enter");
  const mend = page.getByRole("button", { name: "Make it what the log says" });
  await mend.waitFor();
  await shoot(page, "disagrees");
  await mend.click();
  const job = page.locator(".card", { hasText: "Rebuild of user ann" });
  await job.getByText("made what the log says, in version").waitFor();
});

test("a dead letter is retried, another discarded after a question", async () => {
  await open(page, "Dead letters");
  const cards = page.locator(".card");
  await cards.nth(1).waitFor();
  await page.locator(".nav-badge", { hasText: "2" }).waitFor();
  const unknown = page.locator(".card", { hasText: "message.teleported" });
  await unknown.locator("summary").click();
  await unknown.getByText('"specversion": "1.0"').waitFor();
  await shoot(page, "dead-letters");

  await unknown.getByRole("button", { name: "Retry" }).click();
  await page.getByText("it is not understood now either").waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  const astray = page.locator(".card", { hasText: "belongs to partition" });
  await astray.getByRole("button", { name: "Retry" }).click();
  await astray.waitFor({ state: "detached" });

  await unknown.getByRole("button", { name: "Discard" }).click();
  const dialog = page.getByRole("dialog", { name: "Discard dead letter" });
  await shoot(page, "discard");
  await page.keyboard.press("Escape"); // which is a no
  await unknown.getByRole("button", { name: "Discard" }).click();
  await dialog.getByRole("button", { name: "Discard" }).click();
  await page.getByText("There are no dead letters").waitFor();
});

test("the audit trail has all of it", async () => {
  await open(page, "Audit trail");
  const trail = page.getByRole("region", { name: "Audit trail" });
  for (const action of [
    "deadletters.retry",
    "deadletters.discard",
    "rebuild.start",
    "rebuild.cancel",
    "verification.start",
  ]) {
    await trail.getByText(action, { exact: true }).first().waitFor();
  }
  await trail.getByText("another rebuild is under way").waitFor();
  const discarded = trail.getByRole("row", { name: "deadletters.discard" });
  await discarded.locator("summary").click();
  await discarded.getByText('"specversion": "1.0"').waitFor();
  assert.equal(await trail.getByText("ops", { exact: true }).count(), 9);
  await shoot(page, "audit");
});

test("where the server is away it says so, and goes on when it is back", async () => {
  await open(page, "Overview");
  await context.setOffline(true);
  await page.getByText("Server away, trying again").waitFor();
  await shoot(page, "away");
  await context.setOffline(false);
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
});

test("a page that nobody sees asks for nothing", async () => {
  await open(page, "Audit trail");
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
    globalThis.asked = 0;
    globalThis.timers = [];
    const fetchNow = globalThis.fetch;
    globalThis.fetch = (...args) => {
      globalThis.asked += 1;
      return fetchNow(...args);
    };
    globalThis.setTimeout = (call) => globalThis.timers.push(call);
  });
  // Whatever was set before has been cleared, and what is set from now on is known.
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  assert.deepEqual(await page.evaluate(() => [globalThis.asked, globalThis.timers.length]), [0, 0]);
  const answered = page.waitForResponse(/audit/);
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: false, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  });
  await answered;
});

test("everything can be reached with the keyboard", async () => {
  await signIn(page);
  await page.getByRole("link", { name: "Jobs" }).waitFor();
  const reached = new Set();
  for (const view of ["Overview", "Dead letters", "Users", "Jobs", "Audit trail"]) {
    const link = page.getByRole("link", { name: view });
    await link.focus();
    await page.keyboard.press("Enter");
    await page.locator("#views a[aria-current]", { hasText: view }).waitFor();
    assert.equal(await page.evaluate(() => document.activeElement.id), "main");
    reached.add(await page.title());
  }
  assert.equal(reached.size, 5);
});

for (const [colorScheme, width, height] of [
  ["light", 1440, 900],
  ["dark", 1440, 900],
  ["light", 390, 844],
  ["dark", 390, 844],
]) {
  test(`it fits ${width} pixels, ${colorScheme}`, async () => {
    const narrow = patient(await browser.newContext({ viewport: { width, height }, colorScheme }));
    try {
      const page = await newPage(narrow);
      await signIn(page);
      for (const view of ["Overview", "Dead letters", "Users", "Jobs", "Audit trail"]) {
        await page.getByRole("link", { name: view }).click();
        await page.locator("#link-text", { hasText: "Live" }).waitFor();
        if (view === "Users") {
          await page.getByLabel("User", { exact: true }).fill("cem");
          await page.keyboard.press("Enter");
          await page.getByRole("region", { name: "Badge of cem" }).waitFor();
        }
        if (view === "Overview") {
          await page.locator(".chart-empty:visible").first().waitFor({ state: "detached" });
          await page.locator(".uplot canvas").nth(3).waitFor();
        }
        if (view === "Jobs" || view === "Audit trail")
          await page.getByText("ops").first().waitFor();
        const wide = await page.evaluate(() => document.documentElement.scrollWidth);
        assert(wide <= width, `${view} is ${wide} pixels wide`);
        const unnamed = await page.evaluate(() =>
          [...document.querySelectorAll("button, input, a")]
            .filter((e) => !e.ariaLabel && !e.textContent.trim() && !e.labels?.length)
            .map((e) => e.outerHTML.slice(0, 80)),
        );
        assert.deepEqual(unnamed, [], "a screen reader has no names for these");
        await shoot(page, `${view.toLowerCase().replace(" ", "-")}-${colorScheme}-${width}`);
      }
    } finally {
      await narrow.close();
    }
  });
}
