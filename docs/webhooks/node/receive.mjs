// Receives webhooks of badged and prints what it could verify.
import { createHmac, timingSafeEqual } from "node:crypto";
import { createServer } from "node:http";

const secret = Buffer.from(process.env.WEBHOOK_SECRET.replace(/^whsec_/, ""), "base64");
const tolerance = 5 * 60; // seconds

function isGenuine(headers, body) {
  const id = headers["webhook-id"] ?? "";
  const timestamp = headers["webhook-timestamp"] ?? "";
  // An old call may have been recorded and sent again by somebody else.
  if (!/^\d+$/.test(timestamp) || Math.abs(Date.now() / 1000 - Number(timestamp)) > tolerance) {
    return false;
  }
  const hmac = createHmac("sha256", secret).update(`${id}.${timestamp}.`).update(body);
  const expected = Buffer.from(`v1,${hmac.digest("base64")}`);
  // Several while a secret is replaced.
  return (headers["webhook-signature"] ?? "").split(" ").some((one) => {
    const given = Buffer.from(one);
    return given.length === expected.length && timingSafeEqual(given, expected);
  });
}

createServer(async (request, response) => {
  if (request.method === "OPTIONS") { // badged asks for permission
    response.setHeader("WebHook-Allowed-Origin", request.headers["webhook-request-origin"] ?? "");
    response.setHeader("WebHook-Allowed-Rate", "*");
    response.end();
    return;
  }
  // The signature covers these bytes: verify before decoding.
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  const body = Buffer.concat(chunks);
  const genuine = isGenuine(request.headers, body);
  if (genuine) console.log(request.headers["webhook-id"], body.toString());
  response.writeHead(genuine ? 204 : 401).end();
}).listen(Number(process.env.PORT), "127.0.0.1");
