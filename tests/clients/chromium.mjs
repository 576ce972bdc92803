// A client in Chromium, which a test tells line by line what to do, and which
// tells it what happens; see tests/foreign_test.go.

import { createInterface } from "node:readline";
import { launch, newContext } from "../../web/browser/chromium.mjs";

const tell = (event) => console.log(JSON.stringify(event));

const browser = await launch();
try {
  const context = await newContext(browser);
  const page = await context.newPage();
  await page.exposeFunction("tell", tell);
  for await (const line of createInterface({ input: process.stdin })) {
    const command = JSON.parse(line);
    switch (command.do) {
      case "connect":
        // From another origin the server lets no page connect.
        await page.goto(new URL("/livez", command.url.replace("ws", "http")).href);
        await page.evaluate(({ url, protocols }) => {
          const socket = new WebSocket(url, protocols);
          socket.onopen = () => tell({ event: "open", protocol: socket.protocol });
          socket.onmessage = ({ data }) => tell({ event: "text", text: data });
          socket.onclose = ({ code }) => tell({ event: "close", code });
          window.socket = socket;
        }, command);
        break;
      case "send":
        await page.evaluate((text) => window.socket.send(text), command.text);
        break;
      case "close":
        await page.evaluate(() => window.socket.close(1000));
        break;
    }
  }
} finally {
  await browser.close();
}
