// A client by the package ws, which a test tells line by line what to do, and
// which tells it what happens; see tests/foreign_test.go.

import { createInterface } from "node:readline";
import WebSocket from "ws";

const tell = (event) => console.log(JSON.stringify(event));

let socket;
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  switch (command.do) {
    case "connect":
      socket = new WebSocket(command.url, command.protocols);
      socket.on("open", () => tell({ event: "open", protocol: socket.protocol }));
      socket.on("message", (data, binary) => tell({ event: binary ? "binary" : "text", text: data.toString() }));
      socket.on("close", (code) => tell({ event: "close", code }));
      socket.on("error", (error) => tell({ event: "error", text: error.message }));
      break;
    case "send":
      socket.send(command.text);
      break;
    case "close":
      socket.close(1000);
      break;
  }
}
socket?.terminate();
