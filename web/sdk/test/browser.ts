// Fakes of what the tabs of a browser share.

import assert from "node:assert/strict";
import type { ChannelLike, LocksLike } from "../src/index.js";
import { Bench, conversation, FakeClock, FakeStorage, settled, snapshot } from "./fakes.js";

interface Wish {
  granted: () => Promise<void>;
  resolve: (value?: unknown) => void;
  reject: () => void;
}

/** A browser: the locks, channels and storage that its tabs share. */
export class FakeBrowser implements LocksLike {
  readonly storage = new FakeStorage();
  readonly clock = new FakeClock();
  readonly channels = new Map<string, Set<FakeChannel>>();
  readonly #locks = new Map<string, { held?: Wish | undefined; waiting: Wish[] }>();

  /** As in the standard: one holds the lock, others wait, and one may steal it. */
  request(
    name: string,
    { signal, steal }: { signal?: AbortSignal; steal?: boolean },
    granted: () => Promise<void>,
  ): Promise<unknown> {
    const lock = this.#locks.get(name) ?? { waiting: [] };
    this.#locks.set(name, lock);
    return new Promise((resolve, reject) => {
      const wish = { granted, resolve, reject: () => reject(new DOMException("", "AbortError")) };
      if (steal) {
        lock.held?.reject();
        lock.held = undefined;
        lock.waiting.unshift(wish);
      } else {
        lock.waiting.push(wish);
      }
      signal?.addEventListener("abort", () => {
        if (!lock.waiting.includes(wish)) return;
        lock.waiting = lock.waiting.filter((other) => other !== wish);
        wish.reject();
      });
      queueMicrotask(() => this.#grant(name));
    });
  }

  #grant(name: string): void {
    const lock = this.#locks.get(name);
    if (lock === undefined || lock.held !== undefined) return;
    const wish = lock.waiting.shift();
    if (wish === undefined) return;
    lock.held = wish;
    void wish.granted().then(() => {
      wish.resolve();
      if (lock.held !== wish) return;
      lock.held = undefined;
      this.#grant(name);
    });
  }

  tab(user = "ada", locks: LocksLike = this, clock: FakeClock = this.clock): Bench {
    const { storage, channels } = this;
    return new Bench({
      user,
      storage,
      clock,
      locks,
      BroadcastChannel: class extends FakeChannel {
        constructor(name: string) {
          super(name, channels);
        }
      },
    });
  }
}

export class FakeChannel implements ChannelLike {
  onmessage: ((event: never) => unknown) | null = null;
  /** The messages that arrived while the tab was frozen. */
  #kept: unknown[] | undefined;
  readonly #peers: Set<FakeChannel>;

  constructor(name: string, channels: Map<string, Set<FakeChannel>>) {
    this.#peers = channels.get(name) ?? new Set();
    channels.set(name, this.#peers);
    this.#peers.add(this);
  }

  postMessage(message: unknown): void {
    assert(this.#peers.has(this), "the channel is closed");
    const data = structuredClone(message);
    for (const peer of this.#peers) {
      if (peer === this) continue;
      queueMicrotask(() => peer.#receive(data));
    }
  }

  #receive(data: unknown): void {
    if (!this.#peers.has(this)) return;
    if (this.#kept !== undefined) this.#kept.push(data);
    else this.onmessage?.({ data } as never);
  }

  freeze(): void {
    this.#kept = [];
  }

  thaw(): void {
    const kept = this.#kept ?? [];
    this.#kept = undefined;
    for (const data of kept) this.#receive(data);
  }

  close(): void {
    this.#peers.delete(this);
  }
}

/** The clock of one tab, whose timers may be late or not fire at all. */
export class TabClock extends FakeClock {
  lateMs = 0;
  frozen = false;
  readonly #clock: FakeClock;

  constructor(clock: FakeClock) {
    super();
    this.#clock = clock;
  }

  override now(): number {
    return this.#clock.now();
  }

  override after(delayMs: number, call: () => void): () => void {
    return this.#clock.after(delayMs + this.lateMs, () => {
      if (!this.frozen) call();
    });
  }
}

export const state = snapshot(7, [conversation("a", 2, 7), conversation("b", 1, 5)]);

/** Two tabs of a user; the first leads. */
export async function pair(
  browser = new FakeBrowser(),
  leader = browser.tab(),
): Promise<[Bench, Bench]> {
  await leader.online(state);
  const follower = browser.tab();
  follower.client.start();
  await settled();
  follower.told.length = 0;
  return [leader, follower];
}
