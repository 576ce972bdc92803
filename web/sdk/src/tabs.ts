import type { ChannelLike, Environment } from "./environment.js";
import type { Answer, Command, StateFrame } from "./frames.js";
import type { Status } from "./link.js";

/** What the tabs of one user tell each other. @internal */
export type TabMessage =
  /** To the leader: a tab is new, or has missed something. */
  | { readonly m: "hello" }
  /** To the leader: the user did something in another tab. */
  | { readonly m: "command"; readonly command: Command; readonly reads: readonly Command[] }
  /** From the leader: it is there, and as what. */
  | { readonly m: "status"; readonly status: Status; readonly elected: boolean }
  /** From the leader: a state, complete for whoever holds version `base` of its epoch. */
  | { readonly m: "state"; readonly frame: StateFrame; readonly base: number }
  | { readonly m: "answer"; readonly answer: Answer }
  /** From any tab: the user signs out. */
  | { readonly m: "forget" };

/**
 * The tabs of one user on one server. One of them leads: it alone has a
 * connection. When it goes, another one takes its place.
 *
 * @internal
 */
export class Tabs {
  readonly #name: string | undefined;
  readonly #environment: Environment;
  readonly #onLead: () => void;
  readonly #onMessage: (message: TabMessage) => void;
  #channel: ChannelLike | undefined;
  #leads = false;
  #leave = () => {};

  /** Without a name, or in browsers that cannot share, every tab leads. */
  constructor(
    name: string | undefined,
    environment: Environment,
    onLead: () => void,
    onMessage: (message: TabMessage) => void,
  ) {
    this.#name = name;
    this.#environment = environment;
    this.#onLead = onLead;
    this.#onMessage = onMessage;
  }

  get leads(): boolean {
    return this.#leads;
  }

  join(): void {
    const { locks, BroadcastChannel } = this.#environment;
    if (this.#name === undefined || locks === null || BroadcastChannel === null) {
      this.#lead();
      return;
    }
    const channel = new BroadcastChannel(this.#name);
    channel.onmessage = ({ data }: { data: TabMessage }) => this.#onMessage(data);
    this.#channel = channel;

    const left = new AbortController();
    this.#leave = () => left.abort();
    const until = new Promise<void>((resolve) =>
      left.signal.addEventListener("abort", () => resolve()),
    );
    locks
      .request(this.#name, { signal: left.signal }, () => {
        // Granted, though the wish was taken back just now.
        if (!left.signal.aborted) this.#lead();
        return until;
      })
      // The wish was taken back.
      .catch(() => {});
  }

  /** Lets another tab lead, and hears no more. */
  leave(): void {
    this.#leads = false;
    this.#leave();
    this.#channel?.close();
    this.#channel = undefined;
  }

  post(message: TabMessage): void {
    this.#channel?.postMessage(message);
  }

  #lead(): void {
    this.#leads = true;
    this.#onLead();
  }
}
