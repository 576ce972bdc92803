// Tests the admin page in a real browser, with a server prepared by go test ./tests -run
// AdminBrowser: two dead letters, one of them valid when it is retried; bob and ann with wrong
// rows; a client that constantly reads the tables of ann's partition; dan, who has read;
// " eve "; busy, with 150 conversations and 300 retries; and a webhook whose endpoint fails
// until it is told to work.

import assert from "node:assert/strict";
import * as chromium from "./chromium.mjs";
import { after, afterEach, before, beforeEach, test } from "./suite.mjs";

const {
  BADGED_URL: url,
  BADGED_ADMIN_KEY: key,
  BADGED_ADMIN_PARTITION: bobs,
  BADGED_ENDPOINT: endpoint,
} = process.env;
if (!url || !key || !bobs || !endpoint) {
  throw new Error("BADGED_URL is not set: run go test ./tests -run AdminBrowser");
}

const views = ["Overview", "Dead letters", "Users", "Jobs", "Webhooks", "Audit trail"];

let browser;
let context;
let page;
let complaints;

before(async () => {
  browser = await chromium.launch();
});

after(() => browser?.close());

beforeEach(async () => {
  context = await chromium.newContext(browser);
  page = await newPage(context);
});

afterEach(async () => {
  await context.close();
  // The browser itself logs deliberate refusals and lost connections.
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
  return chromium.shoot(page, `admin-${name}`, { fullPage: true });
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
  await partitions.locator("tbody tr").nth(7).waitFor();
  assert.equal(await partitions.getByText("none", { exact: true }).count(), 0);
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
  await badge.locator(".big-badge").getByText("4", { exact: true }).waitFor();
  await badge.getByText("The tables match the log").waitFor();
  const lunch = page.locator(".card", { hasText: "lunch" });
  for (const id of ["lunch/1", "lunch/2", "lunch/3"]) await lunch.getByText(id).waitFor();
  await shoot(page, "explain");

  const slider = page.getByLabel("Travel in time");
  await slider.focus();
  await page.keyboard.press("Home");
  await page.getByText("No event of the log names this user by then.").waitFor();
  assert.notEqual(await page.getByLabel("As of").inputValue(), "");
  await page.getByRole("button", { name: "Now" }).click();
  await badge.locator(".big-badge").getByText("4", { exact: true }).waitFor();

  await page.getByLabel("User", { exact: true }).fill("nobody");
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("No event of the log names this user.").waitFor();
  await page.getByLabel("User", { exact: true }).fill("x".repeat(200));
  await page.getByRole("button", { name: "Explain" }).click();
  await page.getByText("user id must have at most 128 bytes").waitFor();
});

/** Opens a hash in a new tab, as from a link, and signs in. */
async function openLink(hash) {
  await page.goto(`${url}/admin/${hash}`);
  await page.getByLabel("Operator key").fill(key);
  await page.keyboard.press("Enter");
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
}

test("the total over time is a line of steps, and each leads to its event", async () => {
  await openLink("#users?user=dan");
  const steps = page.getByRole("slider", { name: "Steps of the total" });
  await page.locator(".history canvas").waitFor();
  const told = page.locator(".step");
  await told.getByText("Step 7 of 7").waitFor();
  await told.getByText("Message 4 of tea recalled").waitFor();

  await steps.focus();
  await page.keyboard.press("Home");
  await told.getByText("Message 1 of tea delivered").waitFor();
  for (let i = 0; i < 4; i++) await page.keyboard.press("ArrowRight");
  await told.getByText("tea read up to 2").waitFor();
  await told.getByText("dan-read").waitFor();
  assert.match(await told.locator(".step-change").innerText(), /4\s*→\s*2/);
  assert.match(await told.innerText(), /Place in the log\s+\d+\/\d+/);
  assert.match(await steps.getAttribute("aria-valuetext"), /total 4 to 2: tea read up to 2/);
  await shoot(page, "history");
  await told.getByRole("button", { name: "Next step" }).click();
  await told.getByText("Message 4 of tea delivered").waitFor();
  await told.getByRole("button", { name: "Previous step" }).click();
  await told.getByText("tea read up to 2").waitFor();

  // The URL has the step, and the badge as of then includes its event, to the microsecond.
  await page.reload();
  await told.getByText("Step 5 of 7").waitFor();
  await told.getByRole("link", { name: "The badge as of then" }).click();
  const badge = page.getByRole("region", { name: "Badge of dan" });
  await badge.getByText("as of").waitFor();
  await badge.locator(".big-badge").getByText("2", { exact: true }).waitFor();
  await told.getByText("Step 5 of 5").waitFor();
  await page.goBack();
  await told.getByText("Step 5 of 7").waitFor();

  // A click chooses the step that is nearest.
  const { x, y, width, height } = await page.locator(".history .u-over").boundingBox();
  await page.mouse.click(x + 4, y + height - 4);
  await told.getByText("Message 1 of tea delivered").waitFor();
  await page.mouse.click(x + width - 2, y + height / 2);
  await told.getByText("Step 7 of 7").waitFor();

  await page.getByText("The steps as a table").click();
  const table = page.getByRole("region", { name: "Steps of the total" });
  await table.getByRole("row", { name: "pie" }).getByRole("button").click();
  await told.getByText("Message 1 of pie delivered").waitFor();
});

test("an event that was folded late is shown at that time, and when it was appended", async () => {
  await openLink("#users?user=gus");
  const told = page.locator(".step");
  await told.getByText("Step 2 of 2").waitFor();
  const fact = async (name) => {
    const value = told.locator(".facts > div", { hasText: name }).locator("dd");
    return Date.parse(`${await value.innerText()}Z`);
  };
  const folded = await fact("Folded");
  assert.ok(folded - (await fact("Appended")) >= 1000);
  const steps = page.getByRole("slider", { name: "Steps of the total" });
  const text = await steps.getAttribute("aria-valuetext");
  assert.equal(Date.parse(`${text.split(",")[0]}Z`), folded);

  await page.getByText("The steps as a table").click();
  const table = page.getByRole("region", { name: "Steps of the total" });
  await table.getByRole("row", { name: "gus-late" }).getByText("(appended ").waitFor();
  const inTime = table.getByRole("row").filter({ hasText: "gus/1" });
  assert.doesNotMatch(await inTime.innerText(), /appended/);

  // As of when it was appended, the total was still 1.
  await told.getByRole("link", { name: "The badge as of then" }).click();
  const badge = page.getByRole("region", { name: "Badge of gus" });
  await badge.getByText("as of").waitFor();
  await badge.locator(".big-badge").getByText("2", { exact: true }).waitFor();
  await shoot(page, "folded-late");
});

test("a badge that is too low: each delivered message shows its outcome", async () => {
  await openLink("#users?user=dan&conversation=tea");
  const delivered = page.getByRole("region", { name: "Delivered messages" });
  const row = (event) => delivered.getByRole("row").filter({ hasText: event });
  await row("tea/4").getByText("Recalled by recall from test").waitFor();
  await row("tea/3").getByText("Unread").waitFor();
  await row("tea/2").getByText("Read by dan-read from test").waitFor();
  await row("tea/1").getByText("Read by dan-read from test").waitFor();
  assert.equal(await row("pie/1").count(), 0);
  // A message delivered again after it was read does not count.
  await page.getByText("the conversation was read up to 2 before").first().waitFor();
  await shoot(page, "delivered");
  await page.getByRole("link", { name: "Show all conversations" }).click();
  await row("pie/1").getByText("Unread").waitFor();
});

test("an id with spaces is found, and the spaces are visible", async () => {
  await open(page, "Users");
  const input = page.getByLabel("User", { exact: true });
  await input.fill(" eve ");
  await page.getByText("Begins and ends with a space").waitFor();
  await page.keyboard.press("Enter");
  const badge = page.locator(".summary");
  await badge.locator(".big-badge").getByText("2", { exact: true }).waitFor();
  assert.equal(await badge.locator("h2").evaluate((e) => e.textContent), " eve ");
  const spaces = await badge
    .locator("h2 .space")
    .evaluateAll((all) => all.map((e) => e.getBoundingClientRect().width));
  assert(spaces.length === 2 && spaces.every((wide) => wide > 2), `the spaces are ${spaces} wide`);
  await shoot(page, "spaces");
  await page.reload();
  await badge.locator(".big-badge").getByText("2", { exact: true }).waitFor();
  assert.equal(await input.inputValue(), " eve ");
  await input.fill("eve");
  await page.keyboard.press("Enter");
  await badge.locator(".big-badge").getByText("1", { exact: true }).waitFor();
});

test("150 conversations and a flood of retries are folded", async () => {
  await openLink("#users?user=busy");
  const conversations = page.getByRole("list", { name: "Conversations", exact: true });
  await conversations.getByRole("listitem").nth(9).waitFor();
  assert.equal(await page.locator(".card:visible").count(), 10);
  await page.getByText(/^1\d\d other conversations, which add/).click();
  assert((await page.locator(".card:visible").count()) > 140);
  await page.getByText(/^1\d\d other conversations, which add/).click();
  await page.locator(".card-head", { hasText: "room-151" }).click();
  await page.getByRole("region", { name: "Unread messages of room-151" }).waitFor();

  const uncounted = page.getByRole("region", { name: "Events that changed no number" });
  const flood = uncounted.getByRole("button", { name: "300 events" });
  await flood.waitFor();
  await uncounted.getByText("busy-again").waitFor(); // the rare one is seen
  assert.equal(await uncounted.locator("tbody tr:visible").count(), 2);
  await shoot(page, "floods");
  await flood.click();
  assert((await uncounted.locator("tbody tr:visible").count()) > 90);
  await flood.focus();
  await page.keyboard.press("Enter");
  assert.equal(await uncounted.locator("tbody tr:visible").count(), 2);
});

test("if tables and log differ, the number of the log stands out", async () => {
  await openLink("#users?user=bob");
  const alert = page.getByRole("alert");
  await alert.getByText("the tables have 7").first().waitFor();
  const size = (locator) =>
    locator.evaluate((e) => Number.parseFloat(getComputedStyle(e).fontSize));
  const badge = page.getByRole("region", { name: "Badge of bob" });
  const log = badge.locator(".big-badge");
  assert.equal(await log.evaluate((e) => e.textContent), "Total 3");
  const wrong = await size(alert.locator(".wrong-tables").first());
  assert((await size(log)) >= 2 * wrong, "the badge is not larger than what the tables have");
  assert((await size(alert.locator(".wrong-log").first())) >= 1.5 * wrong);
  await alert.getByText("+4").first().waitFor();
  const damaged = alert.locator("li", { hasText: "unread is 3 by the log, the table has 7" });
  await damaged.getByText("lunch").waitFor();
  await shoot(page, "differs");
});

test("a verification finds differences, and a rebuild of the partition heals them", async () => {
  await open(page, "Jobs");
  await page.getByLabel("Partition").first().fill(bobs);
  await page.getByRole("button", { name: "Verify" }).click();
  const verified = page.locator(".card", { hasText: `Verification of partition ${bobs}` });
  await verified.getByText("compared: 3 differences").waitFor();
  await verified.locator("summary").click();
  const difference = verified.locator("li", { hasText: "total is 3 by the log, the table has 7" });
  await difference.waitFor();
  await shoot(page, "differences");
  // Each leads to its user, and the job has an address of its own.
  await difference.getByRole("link", { name: "bob" }).click();
  await page.getByRole("region", { name: "Badge of bob" }).waitFor();
  await page.goBack();
  await verified.getByRole("link", { name: /^job \d+$/ }).click();
  const place = new URL(page.url()).hash;
  assert.match(place, /^#jobs\?job=\d+$/);
  await page.reload();
  await page.locator(".card.is-wanted", { hasText: "Verification" }).waitFor();
  await verified.getByText("total is 3 by the log").waitFor(); // unfolded

  await page.getByLabel("Partition").nth(1).fill(bobs);
  await page.getByRole("button", { name: "Rebuild", exact: true }).click();
  await page.getByRole("dialog").getByRole("button", { name: "Rebuild", exact: true }).click();
  const rebuilt = page.locator(".card", { hasText: `Rebuild of partition ${bobs}` });
  await rebuilt.getByText("1 user healed").waitFor();
  await shoot(page, "jobs");
});

test("a rebuild shows its progress, and can be canceled", async () => {
  await open(page, "Jobs");
  await page.getByRole("button", { name: "Rebuild", exact: true }).click();
  const dialog = page.getByRole("dialog", { name: "Rebuild all partitions?" });
  await dialog.getByRole("button", { name: "Do not rebuild" }).click();
  await page.getByRole("button", { name: "Rebuild", exact: true }).click();
  await dialog.getByRole("button", { name: "Rebuild", exact: true }).click();
  const job = page.locator(".card", { hasText: "Rebuild of all partitions" });
  await job.getByText("waits for").waitFor();
  assert((await job.getByRole("progressbar").getAttribute("value")) > 0);
  await page.locator(".nav-badge", { hasText: "1" }).first().waitFor();
  await shoot(page, "rebuilding");

  // Only one rebuild may run at a time.
  await page.getByRole("button", { name: "Rebuild", exact: true }).click();
  await dialog.getByRole("button", { name: "Rebuild", exact: true }).click();
  const refused = page.getByRole("dialog", { name: "The action failed" });
  await refused.getByText("another rebuild is under way").waitFor();
  await shoot(page, "refused");
  await page.keyboard.press("Escape");
  const cancel = job.getByRole("button", { name: /^Cancel rebuild of all partitions, job \d+$/ });
  assert.equal(await cancel.innerText(), "Cancel rebuild");
  await cancel.click();
  await job.getByText("canceled", { exact: true }).waitFor();
});

test("a user with wrong tables is healed from the explanation", async () => {
  await open(page, "Users");
  await page.getByLabel("User", { exact: true }).fill("ann");
  await page.keyboard.press("Enter");
  const heal = page.getByRole("button", { name: "Heal from the log" });
  await heal.waitFor();
  await shoot(page, "disagrees");
  await heal.click();
  const job = page.locator(".card", { hasText: "Rebuild of user ann" });
  await job.getByText("healed in version").waitFor();
});

test("a dead letter is retried, another discarded after a confirmation", async () => {
  await open(page, "Dead letters");
  const cards = page.locator(".card");
  await cards.nth(1).waitFor();
  await page.locator(".nav-badge", { hasText: "2" }).waitFor();
  const unknown = page.locator(".card", { hasText: "message.teleported" });
  await unknown.locator("summary").click();
  await unknown.getByText('"specversion": "1.0"').waitFor();
  await shoot(page, "dead-letters");

  await unknown.getByRole("button", { name: "Retry" }).click();
  await page.getByText("it still cannot be decoded").waitFor();
  await page.getByRole("button", { name: "Close" }).click();

  const astray = page.locator(".card", { hasText: "does not belong to partition" });
  await astray.getByRole("button", { name: "Retry" }).click();
  await astray.waitFor({ state: "detached" });

  await unknown.getByRole("button", { name: "Discard" }).click();
  const dialog = page.getByRole("dialog", { name: "Discard dead letter" });
  await shoot(page, "discard");
  await page.keyboard.press("Escape"); // declines
  await unknown.getByRole("button", { name: "Discard" }).click();
  await dialog.getByRole("button", { name: "Discard" }).click();
  await page.getByText("There are no dead letters").waitFor();
});

test("the audit trail has all actions", async () => {
  await open(page, "Audit trail");
  const trail = page.getByRole("region", { name: "Audit trail" });
  for (const action of [
    "deadletters.retry",
    "deadletters.discard",
    "rebuild.start",
    "rebuild.cancel",
    "verification.start",
    "user.explain",
    "deadletters.read",
  ]) {
    await trail.getByText(action, { exact: true }).first().waitFor();
  }
  await trail.getByText("another rebuild is under way").waitFor();
  const discarded = trail.getByRole("row", { name: "deadletters.discard" });
  await discarded.locator("summary").click();
  await discarded.getByText('"specversion": "1.0"').waitFor();
  const changes = trail.getByRole("row").filter({
    has: page.getByText("ops", { exact: true }),
    hasNotText: /user\.explain|deadletters\.read/,
  });
  assert.equal(await changes.count(), 10);
  await shoot(page, "audit");
});

test("a failing webhook is paused, resumed, and tried again", async () => {
  await open(page, "Webhooks");
  const card = page.locator(".card", { hasText: "crm" });
  await card.getByText("failing", { exact: true }).waitFor();
  await card.getByText("the endpoint answered 503 Service Unavailable").waitFor();
  await card.getByText(/^\d+ events? due$/).waitFor();
  await card.getByText("/hook?…").waitFor();
  assert.equal(await page.getByText("s3cret").count(), 0);
  await page.locator(".nav-badge", { hasText: "1" }).first().waitFor();
  await shoot(page, "webhooks");

  await card.getByRole("button", { name: "Pause crm" }).click();
  await card.getByText("paused", { exact: true }).waitFor();
  await card.getByText(/^\d+ events? wait$/).waitFor();
  await card.getByRole("button", { name: "Resume crm" }).click();
  // It fails again, and the next call would come late.
  await card.getByText("failing", { exact: true }).waitFor();
  assert.equal((await fetch(`${endpoint}/works`)).status, 204);
  await card.getByRole("button", { name: "Retry now: crm" }).click();
  await card.getByText("active", { exact: true }).waitFor();
  await card.getByText("Nothing is due").waitFor();
  await card.getByText("last success").waitFor();
  assert.equal(await card.getByText("the endpoint answered").count(), 0);
});

test("the page shows that the server is unreachable, and recovers", async () => {
  await open(page, "Overview");
  await context.setOffline(true);
  await page.getByText("Server unreachable, retrying").waitFor();
  await shoot(page, "away");
  await context.setOffline(false);
  await page.locator("#link-text", { hasText: "Live" }).waitFor();
});

test("a hidden page does not poll", async () => {
  await open(page, "Overview");
  // A poll is under way and another must follow, as the page is hidden.
  let release;
  const released = new Promise((resolve) => {
    release = resolve;
  });
  await page.route("**/v1/partitions", async (route) => {
    await released;
    await route.continue();
  });
  const asked = page.waitForRequest(/v1.partitions/);
  await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
  await asked;
  await page.getByRole("link", { name: "Audit trail" }).click();
  await page.evaluate(() => {
    Object.defineProperty(document, "hidden", { value: true, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
    globalThis.asked = 0;
    globalThis.timers = 0;
    const { fetch, setTimeout } = globalThis;
    globalThis.fetch = (...args) => {
      globalThis.asked += 1;
      return fetch(...args);
    };
    globalThis.setTimeout = (...args) => {
      globalThis.timers += 1;
      return setTimeout(...args);
    };
    document.querySelector("#link").dataset.state = "before the answer";
  });
  release();
  await page.locator("#link[data-state=live]").waitFor();
  assert.deepEqual(await page.evaluate(() => [globalThis.asked, globalThis.timers]), [0, 0]);
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
  for (const view of views) {
    const link = page.getByRole("link", { name: view });
    await link.focus();
    await page.keyboard.press("Enter");
    await page.locator("#views a[aria-current]", { hasText: view }).waitFor();
    await page.locator("#main:focus").waitFor({ state: "attached" });
    reached.add(await page.title());
  }
  assert.equal(reached.size, 6);
});

for (const [colorScheme, width, height] of [
  ["light", 1440, 900],
  ["dark", 390, 844],
]) {
  test(`it fits ${width} pixels, ${colorScheme}`, async () => {
    const narrow = await chromium.newContext(browser, { viewport: { width, height }, colorScheme });
    try {
      const page = await newPage(narrow);
      await signIn(page);
      for (const view of views) {
        await page.getByRole("link", { name: view }).click();
        await page.locator("#link-text", { hasText: "Live" }).waitFor();
        if (view === "Users") {
          await page.getByLabel("User", { exact: true }).fill("dan");
          await page.keyboard.press("Enter");
          await page.getByRole("region", { name: "Badge of dan" }).waitFor();
          await page.locator(".history canvas").waitFor();
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
        assert.deepEqual(await chromium.barriers(page), [], view);
        await shoot(page, `${view.toLowerCase().replace(" ", "-")}-${colorScheme}-${width}`);
      }
    } finally {
      await narrow.close();
    }
  });
}
