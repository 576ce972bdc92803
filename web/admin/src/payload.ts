import type { DeadLetter } from "./server.js";

/** How much of a payload that is no JSON is shown. */
const SHOWN = 10_000;

/** The payload of a dead letter for people to read. */
export function payloadText({ payload, payload_base64 }: DeadLetter): string {
  if (payload_base64) {
    const bytes = Uint8Array.from(atob(payload_base64), (c) => c.charCodeAt(0));
    const size = `${bytes.length.toLocaleString("en")} bytes`;
    const text = textOf(bytes);
    if (text === undefined) {
      return `No text, ${size} in base64:\n${cut(payload_base64)}`;
    }
    return `No JSON, ${size}:\n${cut(text)}`;
  }
  if (payload === null) {
    return "null\n\nThe payload was empty, too large to keep, or the JSON value null: the reason says which.";
  }
  return JSON.stringify(payload, null, 2);
}

/** The text that bytes encode in UTF-8; undefined if they are none, or hold control characters. */
function textOf(bytes: Uint8Array): string | undefined {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return /\p{Cc}/u.test(text.replace(/[\t\r\n]/g, "")) ? undefined : text;
  } catch {
    return undefined;
  }
}

function cut(text: string): string {
  return text.length > SHOWN
    ? `${text.slice(0, SHOWN)}\n… cut; \`badged deadletters list --json\` prints all`
    : text;
}
