import type { Clock, WebSocketLike } from "./environment.js";
import { PING } from "./frames.js";

// The pause before a command is sent again if the server gives none.
const RETRY_MS = 1_500;
// A command without an answer for so long is sent again: the stream may outlive its connection.
const ANSWER_MS = 30_000;
// Statuses that refuse a command finally, and their default error codes.
const FINAL: Readonly<Record<number, string>> = {
  400: "invalid",
  404: "not_found",
  413: "invalid",
  422: "invalid",
};

/** The fields used here of a frame that this client encoded. */
interface ClientFrame {
  readonly t: string;
  readonly id?: string;
  readonly epoch?: string;
  readonly version?: number;
  readonly device?: string;
}

/**
 * A socket for networks that block WebSockets: frames come from `GET /v1/sse`,
 * commands go to `POST /v1/commands`. It uses fetch because an `EventSource`
 * cannot send a token.
 *
 * @internal
 */
export class EventStream implements WebSocketLike {
  onopen: WebSocketLike["onopen"] = null;
  onmessage: WebSocketLike["onmessage"] = null;
  onclose: WebSocketLike["onclose"] = null;
  onerror: WebSocketLike["onerror"] = null;
  readonly #fetch: typeof fetch;
  readonly #base: string;
  readonly #authorization: string;
  readonly #clock: Clock;
  readonly #abort = new AbortController();
  /** Those of commands without an answer. */
  readonly #posts = new Set<AbortController>();

  /** `base` is the URL of the server, with a slash at its end. */
  constructor(fetcher: typeof fetch, base: string, token: string, clock: Clock) {
    this.#fetch = fetcher;
    this.#base = base;
    this.#authorization = `Bearer ${token}`;
    this.#clock = clock;
    queueMicrotask(() => this.onopen?.({} as never));
  }

  send(data: string): void {
    const frame: ClientFrame = JSON.parse(data);
    if (frame.t === "hello") void this.#listen(frame);
    // A stream needs no pings, and takes a fresh token only when it reopens.
    else if (frame.id !== undefined && frame.t !== "auth") void this.#post(frame.id, data);
  }

  close(): void {
    for (const request of [this.#abort, ...this.#posts]) request.abort();
  }

  async #listen({ epoch, version, device }: ClientFrame): Promise<void> {
    const query = device === undefined ? "" : `?device=${encodeURIComponent(device)}`;
    try {
      const response = await this.#fetch(`${this.#base}v1/sse${query}`, {
        headers: {
          Accept: "text/event-stream",
          Authorization: this.#authorization,
          ...(epoch === undefined ? {} : { "Last-Event-ID": `${epoch}:${version}` }),
        },
        cache: "no-store",
        signal: this.#abort.signal,
      });
      if (!response.ok || response.body === null) {
        const { detail, retryMs } = await readProblem(response);
        const code = closeCode(response.status, detail !== undefined);
        this.#tell({ t: "bye", code, reconnect_ms: retryMs });
        return;
      }
      await this.#read(response.body);
    } catch {
      // Reported below as code 1006.
    }
    this.onclose?.({ code: 1006, reason: "" } as never);
  }

  async #read(body: ReadableStream<Uint8Array>): Promise<void> {
    const reader = body.getReader();
    const decoder = new TextDecoder();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += decoder.decode(value, { stream: true });
      const events = text.split(/\r?\n\r?\n/);
      text = events.pop() ?? "";
      for (const event of events) {
        const data = event.match(/^data:.*/gm)?.map((line) => line.slice(5).trim());
        // An event without data, such as a comment, proves that the stream is alive.
        this.#tell(data?.join("\n") ?? PING);
      }
    }
  }

  async #post(id: string, body: string): Promise<void> {
    let refusal = { code: "unavailable", message: "no answer", retryMs: RETRY_MS };
    const request = new AbortController();
    this.#posts.add(request);
    const cancel = this.#clock.after(ANSWER_MS, () => request.abort());
    try {
      const response = await this.#fetch(`${this.#base}v1/commands`, {
        method: "POST",
        headers: { Authorization: this.#authorization, "Content-Type": "application/json" },
        body,
        signal: request.signal,
      });
      if (response.ok) {
        this.#tell(await response.text());
        return;
      }
      const { code, detail, retryMs } = await readProblem(response);
      // Without `detail` the answer may come from a proxy: send the command again.
      const final = detail !== undefined && retryMs === 0 ? FINAL[response.status] : undefined;
      refusal = {
        code: code ?? final ?? refusal.code,
        message: detail ?? refusal.message,
        retryMs: final === undefined ? retryMs || RETRY_MS : 0,
      };
    } catch {
      // No readable answer: send the command again.
    } finally {
      cancel();
      this.#posts.delete(request);
    }
    const { code, message, retryMs } = refusal;
    this.#tell({ t: "error", id, code, message, retry_ms: retryMs });
  }

  #tell(frame: object | string): void {
    if (this.#abort.signal.aborted) return;
    const data = typeof frame === "string" ? frame : JSON.stringify(frame);
    this.onmessage?.({ data } as never);
  }
}

/** The close code that corresponds to an HTTP status, of the server or of a proxy. */
function closeCode(status: number, ofServer: boolean): number {
  // The status does not tell a bad token from an expired one: try a fresh one.
  if (status === 401) return 4202;
  if (status === 403 && ofServer) return 4003;
  return status === 429 || status === 503 ? 4100 : 1006;
}

/** What an error response says. */
interface Problem {
  readonly code: string | undefined;
  readonly detail: string | undefined;
  /** The pause that the server asks for; 0 if none. */
  readonly retryMs: number;
}

async function readProblem(response: Response): Promise<Problem> {
  // A proxy may answer with HTML, and CORS may hide the header.
  const problem = await response.json().catch(() => undefined);
  const seconds = Number(response.headers.get("Retry-After"));
  const text = (value: unknown) => (typeof value === "string" ? value : undefined);
  return {
    code: text(problem?.code),
    detail: text(problem?.detail),
    retryMs: Math.max(0, Math.trunc(Number(problem?.retry_ms ?? seconds * 1000))) || 0,
  };
}
