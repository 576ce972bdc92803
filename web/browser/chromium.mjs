// Chromium for the browser tests, and the page of the demo.

import { existsSync, mkdirSync } from "node:fs";
import { join } from "node:path";
import axe from "axe-core";
import { chromium } from "playwright-core";
import { PATIENCE_MS } from "./patience.mjs";

/** The browser without windows comes first: it takes less than half of the processor time. */
const PLACES = [
  process.env.CHROMIUM,
  "/usr/bin/chromium-headless-shell",
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

export function launch() {
  const executablePath = PLACES.find((place) => place && existsSync(place));
  if (!executablePath)
    throw new Error("Chromium not found: install it, or set CHROMIUM to its path");
  // Chromium as root has no sandbox, and the pages are trusted.
  return chromium.launch({ executablePath, args: ["--no-sandbox"], timeout: PATIENCE_MS });
}

/**
 * A context whose timeout is PATIENCE_MS, 1440 pixels wide unless the options say otherwise. Its
 * pages do not animate: without a graphics card that takes more of the processor than the tests.
 */
export async function newContext(browser, options) {
  const context = await browser.newContext({
    viewport: { width: 1440, height: 900 },
    reducedMotion: "reduce",
    ...options,
  });
  context.setDefaultTimeout(PATIENCE_MS);
  return context;
}

/** Takes a screenshot for people to look at, if BADGED_SCREENSHOTS names a folder for them. */
export async function shoot(page, name, options) {
  const folder = process.env.BADGED_SCREENSHOTS;
  if (!folder) return;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, `${name}.png`), ...options });
}

/**
 * What is hard to use on a page for people who do not see well, or use a keyboard or a screen
 * reader, by axe-core: contrast, names, landmarks, and the rest of WCAG 2.2 AA.
 */
export async function barriers(page) {
  await page.evaluate(axe.source);
  const { violations } = await page.evaluate(() =>
    globalThis.axe.run({ resultTypes: ["violations"] }),
  );
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(
      ({ target, failureSummary }) =>
        `${id}: ${target.join(" ")}: ${failureSummary.split("\n").slice(1).join("; ").trim()}`,
    ),
  );
}

/** A page of the demo, with a record of its sockets and errors. */
export class Demo {
  /** The WebSockets that it has opened. */
  sockets = [];
  /** The errors of its console and scripts. */
  complaints = [];

  constructor(page, url) {
    this.page = page;
    this.url = url;
    page.on("websocket", (socket) => this.sockets.push(socket));
    page.on("pageerror", (error) => this.complaints.push(error.message));
    page.on("console", (message) => {
      if (message.type() === "error") this.complaints.push(message.text());
    });
  }

  static async open(context, url) {
    const demo = new Demo(await context.newPage(), url);
    await demo.goto();
    return demo;
  }

  /** Loads the page, and waits until all phones are online. */
  async goto() {
    await this.page.goto(this.url);
    await this.online(4);
  }

  async online(phones) {
    await this.page.getByText(`${phones} of 4 phones online`).waitFor();
  }

  phone(user) {
    return this.page.locator(`#phone-${user}`);
  }

  row(user, name) {
    const title = this.page.locator(".row-name").getByText(name, { exact: true });
    return this.phone(user).locator(".row").filter({ has: title });
  }

  /** Waits until a phone's icon shows a total; "" means no badge. */
  async total(user, total) {
    await this.page.waitForFunction(
      ([selector, text]) => {
        const badge = document.querySelector(selector);
        return (badge?.hidden ? "" : badge?.textContent) === text;
      },
      [`#phone-${user} .app-icon .badge`, String(total)],
    );
  }

  /** Waits until the log has `times` entries with a text. Throws if it has more. */
  async logged(text, times = 1) {
    const entries = this.page.locator(".event-summary", { hasText: text });
    await entries.nth(times - 1).waitFor();
    const count = await entries.count();
    if (count !== times) throw new Error(`log has ${count} entries "${text}", want ${times}`);
  }
}
