import type { EventError } from "./error.js";

/** How a request ended. */
export type Outcome =
  | { kind: "stored"; position: string }
  /** The same request may succeed later. */
  | { kind: "again"; message: string; status?: number; afterMs: number }
  | { kind: "refused"; message: string; status: number; errors: EventError[] };

/** The answers after which the same request may succeed. */
const AGAIN = new Set([408, 425, 429, 500, 502, 503, 504]);

/** Sends events as one request, which stores all of them or none. It does not fail. */
export async function post(
  send: typeof fetch,
  url: URL,
  key: string,
  body: string,
  timeoutMs: number,
): Promise<Outcome> {
  let answer: Response;
  let text: string;
  try {
    answer = await send(url, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body,
      signal: AbortSignal.timeout(timeoutMs),
    });
    text = await answer.text();
  } catch (error) {
    return { kind: "again", message: `${url.origin} did not answer: ${reason(error)}`, afterMs: 0 };
  }
  const { status } = answer;
  if (status === 202)
    return { kind: "stored", position: answer.headers.get("badged-position") ?? "" };
  const problem = read(text);
  const message = `${url.origin} answered ${status}: ${problem.detail ?? answer.statusText}`;
  if (AGAIN.has(status)) {
    return { kind: "again", message, status, afterMs: pause(answer.headers.get("retry-after")) };
  }
  return { kind: "refused", message, status, errors: problem.errors ?? [] };
}

/** Node wraps the cause of a broken connection in a TypeError that says "fetch failed". */
function reason(error: unknown): string {
  const { cause, message } = error as Error & { cause?: { message?: string; code?: string } };
  return cause?.message || cause?.code || message;
}

function read(text: string): { detail?: string; errors?: EventError[] } {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {}; // of a proxy
  }
}

/** The milliseconds of a Retry-After, which is in seconds or a date. */
function pause(header: string | null): number {
  if (header === null) return 0;
  const seconds = Number(header);
  const ms = Number.isNaN(seconds) ? Date.parse(header) - Date.now() : seconds * 1000;
  return Number.isNaN(ms) ? 0 : Math.max(0, ms);
}
