import type { WebSocketLike } from "./environment.js";
import { PING } from "./frames.js";

/** The fields that matter here, of a frame that this client itself has made. */
interface ClientFrame {
  readonly t: string;
  readonly id?: string;
  readonly epoch?: string;
  readonly version?: number;
}

/**
 * A socket made of server-sent events and requests, for networks that break
 * WebSockets: frames come from `GET /v1/sse`, commands go to
 * `POST /v1/commands`. It reads the stream with fetch, since an `EventSource`
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
  readonly #abort = new AbortController();

  /** `base` is where the server's routes are, with a slash at its end. */
  constructor(fetcher: typeof fetch, base: string, token: string) {
    this.#fetch = fetcher;
    this.#base = base;
    this.#authorization = `Bearer ${token}`;
    queueMicrotask(() => this.onopen?.({} as never));
  }

  send(data: string): void {
    const frame: ClientFrame = JSON.parse(data);
    if (frame.t === "hello") void this.#listen(frame);
    // There is nobody to ping, and a fresh token takes a new stream.
    else if (frame.id !== undefined && frame.t !== "auth") void this.#post(frame.id, data);
  }

  close(): void {
    this.#abort.abort();
  }

  async #listen({ epoch, version }: ClientFrame): Promise<void> {
    try {
      const { ok, status, headers, body } = await this.#fetch(`${this.#base}v1/sse`, {
        headers: {
          Accept: "text/event-stream",
          Authorization: this.#authorization,
          ...(epoch === undefined ? {} : { "Last-Event-ID": `${epoch}:${version}` }),
        },
        cache: "no-store",
        signal: this.#abort.signal,
      });
      if (!ok || body === null) {
        this.#tell({ t: "bye", code: closeCode(status), reconnect_ms: retryAfter(headers) });
        return;
      }
      await this.#read(body);
    } catch {
      // The network's words help nobody: the connection is lost.
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
        // What carries no data is a sign of life all the same.
        this.#tell(data?.join("\n") ?? PING);
      }
    }
  }

  async #post(id: string, body: string): Promise<void> {
    let message = "no answer";
    let retryMs = 1_500;
    let code = "unavailable";
    try {
      const response = await this.#fetch(`${this.#base}v1/commands`, {
        method: "POST",
        headers: { Authorization: this.#authorization, "Content-Type": "application/json" },
        body,
        signal: this.#abort.signal,
      });
      const answer = await response.text();
      if (response.ok) {
        this.#tell(answer);
        return;
      }
      message = JSON.parse(answer).detail ?? message;
      if (response.status === 404) code = "not_found";
      else if ([400, 413, 422].includes(response.status)) code = "invalid";
      retryMs = code === "unavailable" ? retryAfter(response.headers) || retryMs : 0;
    } catch {
      // Not even an answer that can be read: the same command is sent again.
    }
    this.#tell({ t: "error", id, code, message, retry_ms: retryMs });
  }

  #tell(frame: object | string): void {
    if (this.#abort.signal.aborted) return;
    const data = typeof frame === "string" ? frame : JSON.stringify(frame);
    this.onmessage?.({ data } as never);
  }
}

/** The close code that says the same as a status of HTTP. */
function closeCode(status: number): number {
  // Whether the token is bad or only old is not to be seen: a fresh one helps
  // where anything does.
  if (status === 401) return 4202;
  if (status === 403) return 4003;
  return status === 429 || status === 503 ? 4100 : 1006;
}

function retryAfter(headers: Headers): number {
  return Math.trunc(Number(headers.get("Retry-After")) * 1000) || 0;
}
