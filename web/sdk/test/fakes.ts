import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import {
  type AsyncStorageLike,
  Badged,
  type BadgedOptions,
  type Clock,
  type Page,
  type StorageLike,
  type WebSocketLike,
} from "../src/index.js";

/** A clock that moves only when a test advances it. */
export class FakeClock implements Clock {
  #now = 0;
  #timers: { at: number; call: () => void }[] = [];

  now(): number {
    return this.#now;
  }

  /** It starts at 10:00 on the day of the golden frames, whose tokens expire at 10:15. */
  date(): number {
    return Date.parse("2026-11-02T10:00:00Z") + this.#now;
  }

  after(delayMs: number, call: () => void): () => void {
    const timer = { at: this.#now + delayMs, call };
    this.#timers.push(timer);
    return () => {
      this.#timers = this.#timers.filter((other) => other !== timer);
    };
  }

  /** The number of running timers. */
  get pending(): number {
    return this.#timers.length;
  }

  /** The time left of each timer, in milliseconds. */
  get delays(): number[] {
    return this.#timers.map(({ at }) => at - this.#now);
  }

  /** Advances time timer by timer, and lets promises settle after each. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms;
    for (;;) {
      const due = this.#timers.filter(({ at }) => at <= end).sort((a, b) => a.at - b.at)[0];
      if (due === undefined) break;
      this.#timers = this.#timers.filter((other) => other !== due);
      this.#now = due.at;
      due.call();
      await settled();
    }
    this.#now = end;
  }
}

/** Resolves once all promises have settled. */
export function settled(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}

/** A socket with the test as its server. */
export class FakeSocket implements WebSocketLike {
  onopen: ((event: never) => unknown) | null = null;
  onmessage: ((event: never) => unknown) | null = null;
  onclose: ((event: never) => unknown) | null = null;
  onerror: ((event: never) => unknown) | null = null;
  /** The frames that the client sent since the last take. */
  sent: string[] = [];
  closed = false;

  constructor(
    readonly url: string,
    readonly protocols: string[],
  ) {}

  send(data: string): void {
    this.sent.push(data);
  }

  close(): void {
    this.closed = true;
  }

  /** Returns and removes the frames that the client has sent. */
  take(): Record<string, unknown>[] {
    return this.sent.splice(0).map((text) => JSON.parse(text));
  }

  /** Returns and removes the commands that the client has sent, as type and subject. */
  commands(): string[] {
    return this.takeCommands().map(({ t, conversation_id, up_to_seq, category, level }) =>
      [t, conversation_id, up_to_seq, category, level]
        .filter((part) => part !== undefined)
        .join(" "),
    );
  }

  takeCommands(): Record<string, unknown>[] {
    return this.take().filter(({ id }) => id !== undefined);
  }

  /** The server accepts the connection. */
  accept(): void {
    this.onopen?.({} as never);
  }

  /** The server sends a frame. */
  serve(frame: object | string): void {
    const data = typeof frame === "string" ? frame : JSON.stringify(frame);
    this.onmessage?.({ data } as never);
  }

  /** The server closes the connection. */
  drop(code = 1006, reason = ""): void {
    this.onclose?.({ code, reason } as never);
  }
}

/** A storage that can fail as that of a browser. */
export class FakeStorage implements StorageLike {
  readonly items = new Map<string, string>();
  broken = false;
  writes = 0;

  getItem(key: string): string | null {
    if (this.broken) throw new Error("access denied");
    return this.items.get(key) ?? null;
  }

  setItem(key: string, value: string): void {
    if (this.broken) throw new Error("quota exceeded");
    this.writes++;
    this.items.set(key, value);
  }

  removeItem(key: string): void {
    if (this.broken) throw new Error("access denied");
    this.items.delete(key);
  }
}

/** A storage like React Native's. The test lets the calls happen, in order. */
export class FakeAsyncStorage implements AsyncStorageLike {
  readonly items = new Map<string, string>();
  broken = false;
  readonly #calls: (() => void)[] = [];

  /** Lets all calls happen, also those that follow from them. */
  async proceed(): Promise<void> {
    for (let i = 0; i < 10; i++) {
      for (const call of this.#calls.splice(0)) call();
      await settled();
    }
  }

  getItem(key: string): Promise<string | null> {
    return this.#call(() => this.items.get(key) ?? null);
  }

  setItem(key: string, text: string): Promise<void> {
    return this.#call(() => void this.items.set(key, text));
  }

  removeItem(key: string): Promise<void> {
    return this.#call(() => void this.items.delete(key));
  }

  #call<T>(act: () => T): Promise<T> {
    return new Promise((resolve, reject) => {
      this.#calls.push(() => {
        if (this.broken) reject(new Error("the disk is full"));
        else resolve(act());
      });
    });
  }
}

/** A page with events triggered by the test. */
export class FakePage implements Page {
  readonly returning = new Set<() => void>();
  readonly leaving = new Set<() => void>();
  readonly attending = new Set<() => void>();
  looking = true;

  onReturn(call: () => void): () => void {
    this.returning.add(call);
    return () => this.returning.delete(call);
  }

  onLeave(call: () => void): () => void {
    this.leaving.add(call);
    return () => this.leaving.delete(call);
  }

  attended(): boolean {
    return this.looking;
  }

  onAttend(call: () => void): () => void {
    this.attending.add(call);
    return () => this.attending.delete(call);
  }

  /** The user looks at the page, or looks away. */
  look(looking: boolean): void {
    this.looking = looking;
    for (const call of this.attending) call();
  }

  comeBack(): void {
    for (const call of this.returning) call();
  }

  leave(): void {
    for (const call of this.leaving) call();
  }
}

/** A client in a fake environment, with a log of its events. */
export class Bench {
  readonly clock: FakeClock;
  readonly page = new FakePage();
  readonly sockets: FakeSocket[] = [];
  readonly tokensAskedFor: boolean[] = [];
  /** Every event, in order: `total 5`, `conversation a 2`, `status online`. */
  readonly told: string[] = [];
  readonly client: Badged;

  constructor(options: Partial<BadgedOptions> & { clock?: FakeClock } = {}) {
    const { sockets } = this;
    this.clock = options.clock ?? new FakeClock();
    this.client = new Badged({
      url: "https://badges.test",
      token: async ({ expired }) => {
        this.tokensAskedFor.push(expired);
        return `token${this.tokensAskedFor.length}`;
      },
      WebSocket: class extends FakeSocket {
        constructor(url: string, protocols: string[]) {
          super(url, protocols);
          sockets.push(this);
        }
      },
      clock: this.clock,
      page: this.page,
      storage: null,
      locks: null,
      fallback: false,
      // Makes every pause one millisecond below its bound.
      random: () => 0.999999,
      ...options,
    });
    this.client.on("total", ({ total }) => this.told.push(`total ${total}`));
    this.client.on("conversation", ({ conversationId, unread }) =>
      this.told.push(`conversation ${conversationId} ${unread}`),
    );
    this.client.on("status", ({ state }) => this.told.push(`status ${state}`));
  }

  /** The newest socket. */
  get socket(): FakeSocket {
    const socket = this.sockets.at(-1);
    assert(socket, "no socket was opened");
    return socket;
  }

  /** Starts the client and brings it online with a snapshot. */
  async online(state: object = snapshot()): Promise<FakeSocket> {
    this.client.start();
    await settled();
    this.socket.accept();
    this.socket.serve(state);
    this.socket.take();
    this.told.length = 0;
    return this.socket;
  }

  /** Advances to the next attempt, and returns its socket. */
  async retried(): Promise<FakeSocket> {
    const { status } = this.client;
    assert(status.state === "waiting", `status is ${status.state}`);
    await this.clock.advance(status.retryMs);
    await settled();
    return this.socket;
  }
}

/** A conversation in the form of the frames. */
export function conversation(id: string, unread: number, version: number, more: object = {}) {
  return {
    conversation_id: id,
    unread,
    mentions: 0,
    first_unread_seq: unread > 0 ? 1 : 0,
    read_seq: 0,
    last_seq: unread,
    level: "default",
    category: "chat",
    marked_unread: false,
    version,
    ...more,
  };
}

type Wire = ReturnType<typeof conversation>;

/** Numbers in the form of the frames, of which as much is unseen as is unread. */
export function numbers(total: number, more: object = {}) {
  return { total, mentions: 0, unread_conversations: Math.sign(total), unseen: total, ...more };
}

export function snapshot(version = 0, conversations: Wire[] = [], epoch = "e1") {
  const total = conversations.reduce((sum, { unread }) => sum + unread, 0);
  const unread_conversations = conversations.filter(({ unread }) => unread > 0).length;
  const all = numbers(total, { unread_conversations });
  return {
    t: "snapshot",
    epoch,
    version,
    ...all,
    categories: total > 0 ? { chat: all } : {},
    conversations,
    more: false,
    ping_ms: 25_000,
    expires_in_ms: 365 * 86_400_000,
  };
}

export function changes(version: number, total: number, conversations: Wire[], epoch = "e1") {
  const categories = { chat: numbers(total) };
  return { t: "changes", epoch, version, ...numbers(total), categories, conversations };
}

/** A frame of testdata. */
export function golden(name: string): string {
  return readFileSync(`sdk/testdata/frames/${name}.json`, "utf8").trimEnd();
}

/** Random numbers from 0 to 1 with a seed (mulberry32). */
export function generator(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
