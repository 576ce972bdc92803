import { Emitter } from "./emitter.js";
import { type Environment, surroundings } from "./environment.js";
import {
  type Badge,
  type Command,
  type Conversation,
  encodeCommand,
  type StateFrame,
} from "./frames.js";
import { Keeper } from "./keeper.js";
import { Link, type Status, type TokenRequest } from "./link.js";
import { type BadgedError, Outbox, randomId } from "./outbox.js";
import { type Seq, toSeq } from "./seq.js";
import { State } from "./state.js";
import { type TabMessage, Tabs } from "./tabs.js";

/** What a client needs to know. */
export interface BadgedOptions extends Partial<Environment> {
  /**
   * Where the server is: `https://badges.example.com`, with a path if it lives
   * below one.
   */
  readonly url: string;
  /**
   * Gives a token of the user. It is called before every connection, and when
   * the last one is about to end; where it rejects, the client tries again
   * later, as after any failure.
   */
  readonly token: (request: TokenRequest) => Promise<string>;
  /**
   * Whose badge it is: the user of the tokens, by any name. With it the client
   * keeps the last state in the browser, and all tabs of the user share one
   * connection. A browser may have many users, so without it there is neither.
   */
  readonly user?: string;
  /** The pause after the first failure is random, below this; default 500. */
  readonly minBackoffMs?: number;
  /** No pause is longer than this, unless the server asks for it; default 30,000. */
  readonly maxBackoffMs?: number;
  /**
   * Whether to use server-sent events where WebSockets do not get through;
   * default true.
   */
  readonly fallback?: boolean;
}

/** What a client tells its listeners. */
export interface BadgedEvents {
  /** The total, the mentions or a category changed; also the first state. */
  total: Badge;
  /** A conversation changed. One that has nothing to show any more is all zeros. */
  conversation: Conversation;
  status: Status;
}

/**
 * The badge of one user, kept in step with the server: a client is for one
 * user, that of its tokens. It holds what it last heard while there is no
 * connection, and across `stop` and `start`, and asks only for what changed
 * since.
 *
 * Events come after the whole state has changed: a listener that looks at
 * another number than the one it was told sees them agree.
 */
export class Badged {
  readonly #emitter = new Emitter<BadgedEvents>();
  readonly #environment: Environment;
  readonly #keeper: Keeper;
  readonly #outbox: Outbox;
  readonly #link: Link;
  readonly #tabs: Tabs;
  #state = new State();
  #status: Status = { state: "stopped" };
  /** The kept state was not told yet. */
  #untold: boolean;
  /** There is another tab that leads. */
  #follows = false;
  #ignorePage = () => {};

  /** @throws TypeError if the URL is not one, or where there is no WebSocket. */
  constructor(options: BadgedOptions) {
    const base = baseURL(options.url);
    const environment = { ...surroundings(), ...options };
    if (environment.WebSocket === undefined) {
      throw new TypeError("there is no global WebSocket here: give one in the options");
    }
    const name = options.user === undefined ? undefined : `badged ${base} ${options.user}`;
    this.#environment = environment;
    this.#keeper = new Keeper(name, environment, () => this.#state.snapshot);
    this.#outbox = new Outbox({
      clock: environment.clock,
      onChange: () => {
        if (this.#tabs.leads) this.#keeper.saveCommands(this.#outbox.commands);
      },
    });
    this.#link = new Link({
      environment,
      base,
      token: options.token,
      minBackoffMs: options.minBackoffMs ?? 500,
      maxBackoffMs: options.maxBackoffMs ?? 30_000,
      fallback: options.fallback ?? true,
      held: () => this.#state.badge,
      onState: (frame) => this.#receive(frame),
      onAnswer: (answer) => this.#outbox.answer(answer),
      onStatus: (status) => this.#lose(status),
    });
    this.#tabs = new Tabs(
      name,
      environment,
      () => this.#lead(),
      (message) => this.#hear(message),
    );
    const kept = this.#keeper.loadState();
    if (kept !== undefined) this.#state.apply(kept);
    this.#untold = kept !== undefined;
  }

  /** The badge as last heard; undefined before the first state. */
  get badge(): Badge | undefined {
    return this.#state.badge;
  }

  /** The conversations that have or had something to show, by id. */
  get conversations(): ReadonlyMap<string, Conversation> {
    return this.#state.conversations;
  }

  /**
   * The user has more conversations with something to show than the server
   * sends at once; page through the HTTP API for them. The total counts them.
   */
  get more(): boolean {
    return this.#state.more;
  }

  get status(): Status {
    return this.#status;
  }

  /** How many things that the user did the server does not yet have for good. */
  get waiting(): number {
    return this.#outbox.commands.length;
  }

  /** Calls the listener at every such event, until the returned function is called. */
  on<Name extends keyof BadgedEvents>(
    event: Name,
    listener: (value: BadgedEvents[Name]) => void,
  ): () => void {
    return this.#emitter.on(event, listener);
  }

  /**
   * Connects, and stays connected until `stop` or a refusal. A state that was
   * kept from the last visit is told at once.
   */
  start(): void {
    const { state } = this.#status;
    if (state !== "stopped" && state !== "refused") return;
    if (this.#untold && this.badge !== undefined)
      this.#tell(this.badge, this.conversations.values());
    this.#untold = false;

    const { page } = this.#environment;
    const ignoreReturn = page?.onReturn(() => this.#tabs.leads && this.#link.hurry());
    const ignoreLeave = page?.onLeave(() => this.#keeper.flush());
    this.#ignorePage = () => {
      ignoreReturn?.();
      ignoreLeave?.();
    };
    this.#tabs.join();
    if (!this.#tabs.leads) {
      this.#setStatus({ state: "connecting" });
      this.#tabs.post({ m: "hello" });
    }
  }

  /** Disconnects. The state stays, and what the user did waits for the next `start`. */
  stop(): void {
    if (this.#status.state === "stopped") return;
    this.#link.stop();
    this.#leave();
    this.#setStatus({ state: "stopped" });
  }

  /**
   * Stops, here and in the user's other tabs, and leaves nothing in the
   * browser: for when the user signs out.
   */
  forget(): void {
    this.#tabs.post({ m: "forget" });
    this.#forget();
  }

  #forget(): void {
    this.stop();
    this.#state = new State();
    this.#outbox.clear();
    this.#keeper.forget();
  }

  /**
   * Says that the user has read a conversation up to a message, and resolves
   * once the server has that for good; the numbers follow as events. Without a
   * connection it waits for the next one.
   *
   * It rejects with a {@link BadgedError} if the server refuses it, and with a
   * RangeError for what is not a seq.
   */
  async read(conversationId: string, upToSeq: Seq | string): Promise<void> {
    await this.#outbox.add(readUpTo(conversationId, toSeq(upToSeq)));
  }

  /**
   * Says that the user has read everything, or everything of a category, that
   * there is by now. Without a connection that is what this client holds: later
   * messages, and conversations beyond {@link Badged.more}, stay unread.
   */
  async readAll(category?: string): Promise<void> {
    const reads = [...this.conversations.values()]
      .filter(({ unread, markedUnread }) => unread > 0 || markedUnread)
      .filter((conversation) => category === undefined || conversation.category === category)
      .map(({ conversationId, lastSeq }) => readUpTo(conversationId, lastSeq));
    if (this.#status.state !== "online") {
      await Promise.all(reads.map((read) => this.#outbox.add(read)));
      return;
    }
    const all = { t: "read_all", id: randomId() } as const;
    await this.#outbox.add(category === undefined ? all : { ...all, category }, reads);
  }

  /** Says that the conversation is to count at least 1 until it is read. */
  async markUnread(conversationId: string): Promise<void> {
    await this.#outbox.add({ t: "mark_unread", id: randomId(), conversationId });
  }

  /** This tab has the connection from now on. */
  #lead(): void {
    this.#follows = false;
    // What other tabs, or the last visit, have left behind.
    const left = this.#keeper.loadCommands();
    this.#outbox.close();
    for (const command of left) void this.#outbox.add(command);
    this.#tabs.post({ m: "status", status: { state: "connecting" }, elected: true });
    this.#link.start();
  }

  #leave(): void {
    this.#keeper.flush();
    this.#ignorePage();
    this.#tabs.leave();
    this.#follows = false;
    this.#outbox.close();
  }

  /** Takes in a state frame of the server's. */
  #receive(frame: StateFrame): boolean {
    const base = this.badge?.version ?? 0;
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;

    if (applied !== "stale") {
      this.#keeper.saveState();
      this.#tabs.post({ m: "state", frame, base });
    }
    if (this.#status.state !== "online") {
      this.#setStatus({ state: "online" });
      this.#outbox.open((command) => this.#link.send(encodeCommand(command)));
    }
    if (applied !== "stale") this.#tell(applied.badge, applied.conversations);
    return true;
  }

  /** There is no connection, for now or for good. */
  #lose(status: Status): void {
    this.#outbox.close();
    // Tabs that follow find out by themselves: their tokens are their own.
    if (status.state === "refused") this.#leave();
    this.#setStatus(status);
  }

  /** Takes in what another tab says. */
  #hear(message: TabMessage): void {
    const { leads } = this.#tabs;
    if (message.m === "forget") this.#forget();
    else if (message.m === "hello" || message.m === "command") {
      if (leads) this.#serve(message);
    } else if (!leads) {
      this.#follow(message);
    }
  }

  #serve(message: Extract<TabMessage, { m: "hello" | "command" }>): void {
    if (message.m === "hello") {
      const frame = this.#state.snapshot;
      if (frame !== undefined) this.#tabs.post({ m: "state", frame, base: 0 });
      this.#tabs.post({ m: "status", status: this.#status, elected: false });
      return;
    }
    const { id } = message.command;
    this.#outbox.add(message.command, message.reads).then(
      () => this.#tabs.post({ m: "answer", answer: { t: "ok", id, expiresAt: 0 } }),
      ({ code, message }: BadgedError) =>
        this.#tabs.post({ m: "answer", answer: { t: "error", id, code, message, retryMs: 0 } }),
    );
  }

  #follow(message: Exclude<TabMessage, { m: "hello" | "command" | "forget" }>): void {
    if (message.m === "answer") {
      this.#outbox.answer(message.answer);
    } else if (message.m === "status") {
      if (message.elected || !this.#follows) {
        this.#follows = true;
        this.#outbox.close();
        this.#outbox.open((command, reads) => this.#tabs.post({ m: "command", command, reads }));
      }
      this.#setStatus(message.status);
    } else {
      const { frame, base } = message;
      const held = this.badge;
      const complete =
        frame.t === "snapshot" || (held?.epoch === frame.badge.epoch && held.version >= base);
      const applied = complete ? this.#state.apply(frame) : "foreign";
      if (applied === "foreign") this.#tabs.post({ m: "hello" });
      else if (applied !== "stale") this.#tell(applied.badge, applied.conversations);
    }
  }

  #tell(badge: Badge | undefined, conversations: Iterable<Conversation>): void {
    for (const conversation of conversations) this.#emitter.emit("conversation", conversation);
    if (badge !== undefined) this.#emitter.emit("total", badge);
  }

  #setStatus(status: Status): void {
    this.#status = status;
    if (this.#tabs.leads) this.#tabs.post({ m: "status", status, elected: false });
    this.#emitter.emit("status", status);
  }
}

function readUpTo(conversationId: string, upToSeq: Seq): Command {
  return { t: "read", id: randomId(), conversationId, upToSeq };
}

/** The server's URL by HTTP, with a slash at its end. */
function baseURL(text: string): string {
  const url = new URL(text);
  url.protocol = url.protocol.replace(/^ws/, "http");
  if (!/^https?:$/.test(url.protocol))
    throw new TypeError(`URL ${text} is neither http(s) nor ws(s)`);
  url.pathname = url.pathname.replace(/\/?$/, "/");
  url.search = "";
  url.hash = "";
  return url.href;
}
