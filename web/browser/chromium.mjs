// Chromium, and what the tests ask of its pages.

import { existsSync } from "node:fs";
import { chromium } from "playwright-core";

const PLACES = [
  process.env.CHROMIUM,
  "/usr/bin/chromium",
  "/usr/bin/chromium-browser",
  "/usr/bin/google-chrome",
  "/Applications/Chromium.app/Contents/MacOS/Chromium",
  "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
];

/** How long to wait for what must happen, however busy the machine is. */
const PATIENCE_MS = 60_000;

export function launch() {
  const executablePath = PLACES.find((place) => place && existsSync(place));
  if (!executablePath) throw new Error("there is no Chromium here: install it, or set CHROMIUM");
  // Root may not use the sandbox, and the pages are our own.
  return chromium.launch({ executablePath, args: ["--no-sandbox"], timeout: PATIENCE_MS });
}

/** A context or a page of its own in which nothing is waited for in haste. */
export function patient(contextOrPage) {
  contextOrPage.setDefaultTimeout(PATIENCE_MS);
  return contextOrPage;
}

/** A page of the demo, and what it does beside what is to be seen. */
export class Demo {
  /** The WebSockets that it has opened. */
  sockets = [];
  /** What its console and its scripts complain about. */
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

  /** Opens the page, and waits until all phones are online. */
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

  /** Waits until a phone's icon shows a total; "" is none. */
  async total(user, total) {
    await this.page.waitForFunction(
      ([selector, text]) => {
        const badge = document.querySelector(selector);
        return (badge?.hidden ? "" : badge?.textContent) === text;
      },
      [`#phone-${user} .app-icon .badge`, String(total)],
    );
  }

  /** Waits until the log has so many entries of a text, and no more. */
  async logged(text, times = 1) {
    const entries = this.page.locator(".event-summary", { hasText: text });
    await entries.nth(times - 1).waitFor();
    const count = await entries.count();
    if (count !== times) throw new Error(`the log has ${text} ${count} times, not ${times}`);
  }
}
