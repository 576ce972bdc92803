// What the tests of the page of the demo share: the server, the browser, a context for each test, and
// what they do with the page.

import { launch, newContext } from "./chromium.mjs";
import { Server } from "./server.mjs";
import { after, afterEach, before, beforeEach } from "./suite.mjs";

export const server = new Server();
export let browser;
export let context;

before(async () => {
  await server.start();
  browser = await launch();
});

after(async () => {
  await browser?.close();
  await server.stop();
});

beforeEach(async () => {
  await server.reset();
  context = await newContext(browser);
});

afterEach(async () => {
  await context.close();
});

/** Reads everything on all phones, so that the next test starts at 0. */
export async function readEverything(demo) {
  for (const user of ["ada", "ben", "chloe", "dev"]) {
    // With nothing to read, nothing would tell when the command has arrived.
    if ((await server.totalOf(user)) === 0) continue;
    await demo.phone(user).getByRole("button", { name: "Read all" }).click();
    await demo.total(user, "");
    // The phone shows what a command does before the server has it. A message that the
    // test sends meanwhile would be read too.
    await server.hasRead(user);
  }
}

/** The panel of the room, and what the test does with it. */
export function roomOf(demo) {
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

export class Signal {
  given = new Promise((resolve) => {
    this.give = resolve;
  });
}
