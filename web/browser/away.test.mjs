// Tests what the admin page shows while a shard is away, with a server prepared by go test
// ./tests -run AdminBrowserWithoutAShard: shard b is away, and a message to a room waits for it
// on shard a. The shard is back once BADGED_BACK was asked for.

import assert from "node:assert/strict";
import * as chromium from "./chromium.mjs";
import { test } from "./suite.mjs";

const { BADGED_URL: url, BADGED_ADMIN_KEY: key, BADGED_BACK: back } = process.env;
if (!url || !key || !back) {
  throw new Error("BADGED_URL is not set: run go test ./tests -run AdminBrowserWithoutAShard");
}

const lists = {
  "Dead letters": "Shard b is away. Its dead letters are missing here.",
  Jobs: "Shard b is away. Its jobs are missing here.",
  Webhooks: "Shard b is away. Its calls are not in these numbers.",
  "Audit trail": "Shard b is away. Its actions are missing here.",
};

test("every list says which shard is away, until it is back", async () => {
  const browser = await chromium.launch();
  try {
    const context = await chromium.newContext(browser);
    const page = await context.newPage();
    await page.goto(`${url}/admin/`);
    await page.getByLabel("Operator key").fill(key);
    await page.keyboard.press("Enter");
    const shards = page.getByRole("list", { name: "Shards that are away" });
    await shards.getByText(/^Shard b, which has the partitions .*, is away: ./).waitFor();
    await shards
      .getByText(/^Waiting on shard a for shard b: 1 message to rooms, the oldest for /)
      .waitFor();
    await chromium.shoot(page, "admin-away", { fullPage: true });
    assert.deepEqual(await chromium.barriers(page), []);
    for (const [view, text] of Object.entries(lists)) {
      await page.getByRole("link", { name: view }).click();
      await page.getByRole("status").getByText(text, { exact: true }).waitFor();
      await chromium.shoot(page, `admin-away-${view.replace(" ", "-").toLowerCase()}`);
      assert.deepEqual(await chromium.barriers(page), []);
    }

    assert((await fetch(back)).ok);
    await page.getByText(lists["Audit trail"]).waitFor({ state: "hidden" });
    await page.getByRole("link", { name: "Overview" }).click();
    await page.getByText("every partition has an owner").waitFor();
    await shards.waitFor({ state: "hidden" });
  } finally {
    await browser.close();
  }
});
