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
