// Runs a program for `badged conformance` behind a proxy without the close frames that
// follow `bye`: `node proxy.mjs PROGRAM…`. Linux' URLSession forgets the messages that it has
// not delivered when a close frame comes.

import { spawn } from "node:child_process";
import { connect, createServer } from "node:net";
import { listen } from "../program.mjs";

const { port, hostname } = new URL(process.env.BADGED_URL);
const CLOSE = 0x88;

/** The length of the frame of a server at the beginning of these bytes. */
function frameLength(bytes) {
  if (bytes.length < 10) return bytes.length < 2 || bytes[1] > 125 ? Infinity : 2 + bytes[1];
  if (bytes[1] === 126) return 4 + bytes.readUInt16BE(2);
  return bytes[1] === 127 ? 10 + Number(bytes.readBigUInt64BE(2)) : 2 + bytes[1];
}

function headLength(bytes) {
  const end = bytes.indexOf("\r\n\r\n");
  return end < 0 ? Infinity : end + 4;
}

const proxy = createServer((client) => {
  const server = connect(Number(port), hostname);
  let rest = Buffer.alloc(0);
  let left = headLength;
  let bye = false;
  server.on("data", (bytes) => {
    rest = Buffer.concat([rest, bytes]);
    for (let n = left(rest); n <= rest.length; n = left(rest)) {
      const part = rest.subarray(0, n);
      rest = rest.subarray(n);
      if (!bye || part[0] !== CLOSE) client.write(part);
      bye ||= part.includes('"t":"bye"');
      left = frameLength;
    }
  });
  client.pipe(server);
  client.on("error", () => {}).on("close", () => server.destroy());
  server.on("error", () => {}).on("close", () => client.destroy());
});

const env = { ...process.env, BADGED_URL: `http://127.0.0.1:${await listen(proxy)}` };
const [program, ...args] = process.argv.slice(2);
spawn(program, args, { env, stdio: "inherit" }).on("exit", (code) => process.exit(code ?? 1));
