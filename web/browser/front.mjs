// A proxy for the browser tests.

import http from "node:http";
import net from "node:net";

/** A proxy in front of the server that also serves test pages, so that they have its origin. */
export class Front {
  /** The URLs of unanswered upgrades; undefined if it forwards upgrades. */
  swallowed;
  /** The response to a request that blocks a page, as if the browser had frozen it. */
  held = new Promise((resolve) => {
    this.hold = resolve;
  });
  #server;
  #servePage;
  #sockets = new Set();
  #http = http.createServer((request, response) => this.#answer(request, response));

  /** `servePage` answers the requests for pages, and returns false for any other. */
  constructor(server, servePage) {
    this.#server = server;
    this.#servePage = servePage;
  }

  async start() {
    this.#http.on("upgrade", (request, socket, head) => this.#upgrade(request, socket, head));
    this.#http.on("connection", (socket) => {
      this.#sockets.add(socket);
      socket.on("error", () => {});
      socket.on("close", () => this.#sockets.delete(socket));
    });
    await new Promise((resolve) => this.#http.listen(0, "127.0.0.1", resolve));
    this.url = `http://127.0.0.1:${this.#http.address().port}`;
  }

  stop() {
    this.#http.close();
    for (const socket of this.#sockets) socket.destroy();
  }

  #answer(request, response) {
    const { method, headers, url } = request;
    if (url === "/hold") {
      this.hold(response);
    } else if (!this.#servePage(request, response)) {
      const onward = http.request(`${this.#server.url}${url}`, { method, headers }, (answer) => {
        response.writeHead(answer.statusCode, answer.headers);
        answer.pipe(response);
      });
      onward.on("error", () => response.destroy());
      response.on("close", () => onward.destroy());
      request.pipe(onward);
    }
  }

  #upgrade({ method, url, rawHeaders }, socket, head) {
    if (this.swallowed !== undefined) {
      this.swallowed.push(url);
      return;
    }
    const { hostname, port } = new URL(this.#server.url);
    const onward = net.connect(Number(port), hostname);
    onward.on("error", () => socket.destroy());
    socket.on("close", () => onward.destroy());
    const lines = rawHeaders.map((text, i) => (i % 2 === 0 ? `${text}: ` : `${text}\r\n`));
    onward.write(`${method} ${url} HTTP/1.1\r\n${lines.join("")}\r\n`);
    onward.write(head);
    onward.pipe(socket).pipe(onward);
  }
}
