import type { ChannelLike, Environment, LocksLike } from "./environment.js";
import type { Answer, Command, StateFrame } from "./frames.js";
import type { Status } from "./link.js";

// How often a follower checks the leader, and after how many unanswered checks
// it takes over. The leader answers from a message handler, because browsers may
// throttle the timers of a hidden tab to one a minute.
const WATCH_MS = 4_000;
const MAX_MISSED = 2;

/** A message between the tabs of one user. @internal */
export type TabMessage =
  /** To the leader: a new tab, or one that missed something, asks for the state. */
  | { readonly m: "hello" }
  /** To the leader: a check, answered with its status. */
  | { readonly m: "watch" }
  /** To the leader: a command of a follower. */
  | { readonly m: "command"; readonly command: Command; readonly reads: readonly Command[] }
  /** From the leader: its status; `elected` if it has just become the leader. */
  | { readonly m: "status"; readonly status: Status; readonly elected: boolean }
  /**
   * From the leader: a frame of the server, which applies to version `base` of
   * its epoch; without `base`, the leader's whole state.
   */
  | { readonly m: "state"; readonly frame: StateFrame; readonly base?: number }
  /** From the leader: the commands that the server's state does not reflect yet. */
  | ({ readonly m: "pending" } & Pending)
  | { readonly m: "answer"; readonly answer: Answer }
  /** From any tab: the user signs out. */
  | { readonly m: "forget" };

/** The commands that the server's state does not reflect yet. @internal */
export interface Pending {
  /** Not yet accepted by the server. */
  readonly waiting: readonly Command[];
  /** The ids of commands that merged into those that wait. */
  readonly merged: readonly string[];
  /** Accepted by the server. */
  readonly settling: readonly Command[];
}

/** @internal */
export interface TabsOptions {
  readonly onLead: () => void;
  /** Another tab has taken over because this one did not answer. */
  readonly onDepose: () => void;
  readonly onMessage: (message: TabMessage) => void;
}

/**
 * Elects a leader among the tabs of one user on one server. Only the leader has
 * a connection. If it closes, or the browser freezes it, another tab takes over.
 *
 * @internal
 */
export class Tabs {
  readonly #name: string | undefined;
  readonly #environment: Environment;
  readonly #options: TabsOptions;
  #channel: ChannelLike | undefined;
  #leads = false;
  #missed = 0;
  /** Cancels the request for the lock, or releases it. */
  #turn = new AbortController();
  #cancelWatch = () => {};

  /** Without a name, or without locks and channels, every tab leads, also if the browser denies locks. */
  constructor(name: string | undefined, environment: Environment, options: TabsOptions) {
    this.#name = name;
    this.#environment = environment;
    this.#options = options;
  }

  get leads(): boolean {
    return this.#leads;
  }

  join(): void {
    this.leave();
    const { locks, BroadcastChannel } = this.#environment;
    if (this.#name === undefined || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const channel = new BroadcastChannel(this.#name);
    channel.onmessage = ({ data }: { data: TabMessage }) => {
      if (["status", "state", "pending", "answer"].includes(data.m)) this.#missed = 0;
      this.#options.onMessage(data);
    };
    this.#channel = channel;
    this.#request(this.#name, locks, false);
    this.#watch(this.#name, locks);
  }

  /** Lets another tab lead, but still receives messages. */
  yield(): void {
    this.#leads = false;
    this.#cancelWatch();
    this.#turn.abort();
  }

  /** Lets another tab lead, and receives no more messages. */
  leave(): void {
    this.yield();
    this.#channel?.close();
    this.#channel = undefined;
  }

  post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  #request(name: string, locks: LocksLike, steal: boolean): void {
    const turn = new AbortController();
    this.#turn = turn;
    const { signal } = turn;
    let granted = false;
    const until = new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve()));
    locks
      // Web Locks rejects `steal` together with `signal`.
      .request(name, steal ? { steal } : { signal }, () => {
        granted = true;
        // The request may have been cancelled just as it was granted.
        if (!signal.aborted) this.#lead();
        return until;
      })
      .catch(() => {
        // Cancelled by this tab. Otherwise the lock was denied or stolen.
        if (signal.aborted) return;
        if (!granted) {
          // As to pages that may not use cookies: asking again would not end.
          this.leave();
          this.#lead();
          return;
        }
        this.#leads = false;
        this.#request(name, locks, false);
        this.#watch(name, locks);
        this.#options.onDepose();
      });
  }

  /** Checks the leader periodically, and takes over if it does not answer. */
  #watch(name: string, locks: LocksLike): void {
    const { clock, random } = this.#environment;
    this.#missed = 0;
    const ask = () => {
      if (this.#missed >= MAX_MISSED) {
        this.#turn.abort();
        this.#request(name, locks, true);
        return;
      }
      this.#missed++;
      this.post({ m: "watch" });
      wait();
    };
    // The random part lets one tab take over first and tell the others.
    const wait = () => {
      this.#cancelWatch = clock.after(WATCH_MS * (1 + random() / 4), ask);
    };
    wait();
  }

  #lead(): void {
    this.#cancelWatch();
    this.#leads = true;
    this.#options.onLead();
  }
}
