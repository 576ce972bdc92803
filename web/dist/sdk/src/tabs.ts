import type { ChannelLike, Environment, LocksLike } from "./environment.js";
import type { Answer, Command, StateFrame } from "./frames.js";
import type { Status } from "./link.js";

// How often at least a follower checks the leader, and after how many unanswered
// checks it takes over: within 3 times 1.25 times this, ten seconds.
const WATCH_MS = 2_500;
const MAX_MISSED = 2;

/** A message between the tabs of one user. @internal */
export type TabMessage =
  /** To the leader: a new tab, or one that missed something, asks for the state. */
  | { readonly m: "hello" }
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

/** A check of the leader, and its answer. */
type Check = { readonly m: "watch" } | { readonly m: "alive" };

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
    const { clock, locks, BroadcastChannel } = this.#environment;
    if (this.#name === undefined || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const name = this.#name;
    const channel = new BroadcastChannel(name);
    channel.onmessage = ({ data }: { data: TabMessage | Check }) => {
      // A page that the browser has frozen may still hear messages, and answer them,
      // but its timers do not fire. One that a message starts is not throttled to one
      // a minute, as the chains of timers of hidden pages are.
      if (data.m === "watch") clock.after(0, () => this.#leads && this.post({ m: "alive" }));
      else if (data.m === "alive") this.#missed = 0;
      else {
        if (data.m === "status" && data.elected) {
          this.#missed = 0;
          // A frozen leader may hear this before it hears of its lock.
          if (this.#leads) this.#depose(name, locks);
        }
        this.#options.onMessage(data);
      }
    };
    this.#channel = channel;
    this.#request(name, locks, false);
    this.#watch(name, locks);
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

  post(message: TabMessage | Check): void {
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
        this.#depose(name, locks);
      });
  }

  /** Another tab has stolen the lock: waits for it again. */
  #depose(name: string, locks: LocksLike): void {
    this.#leads = false;
    this.#turn.abort();
    this.#request(name, locks, false);
    this.#watch(name, locks);
    this.#options.onDepose();
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
