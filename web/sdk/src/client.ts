import { MAX_SEQS, toCategory, toCommand, toFunction, toMessages, toText } from "./arguments.js";
import { covers, NO_NUMBERS, shareOf, sum } from "./category.js";
import { Emitter } from "./emitter.js";
import { defaultEnvironment, type Environment } from "./environment.js";
import {
  type Badge,
  type Command,
  type Conversation,
  encodeCommand,
  type Level,
  type Numbers,
  type StateFrame,
} from "./frames.js";
import { Link, type Status } from "./link.js";
import {
  type BadgedEvents,
  type BadgedOptions,
  baseURL,
  heed,
  type MarkOptions,
  type WaitOptions,
} from "./options.js";
import { type BadgedError, Outbox, randomId } from "./outbox.js";
import { overlay } from "./overlay.js";
import {
  type OpenCategory,
  type OpenConversation,
  type OpenOptions,
  Reading,
  Seeing,
} from "./reading.js";
import { type Seq, seqOf } from "./seq.js";
import { Settling } from "./settling.js";
import { difference, listed, NOTHING, State } from "./state.js";
import { Storage } from "./storage.js";
import { type Pending, type TabMessage, Tabs } from "./tabs.js";

// The name of a user may be longer than an id.
const MAX_USER_BYTES = 1_000;
const NONE: Pending = { waiting: [], merged: [], settling: [] };

/**
 * The live badge of the one user that the tokens name. It keeps its state while
 * disconnected and across `stop` and `start`, and then asks only for what
 * changed.
 *
 * Commands change the numbers at once, in all tabs. The change is undone if the
 * server refuses the command.
 *
 * Events fire after the whole state has changed, so listeners always see
 * numbers that agree.
 */
export class Badged {
  readonly #emitter = new Emitter<BadgedEvents>();
  readonly #environment: Environment;
  readonly #storage: Storage;
  readonly #outbox: Outbox;
  readonly #settling: Settling;
  readonly #link: Link;
  readonly #tabs: Tabs;
  /** The server's state. */
  #state = new State();
  /** The pending commands of other tabs or of the last visit. */
  #others = NONE;
  /** The server's state with the pending commands applied. */
  #view = NOTHING;
  /** The view that listeners know. */
  #told = NOTHING;
  /** The ids of the waiting, settling and merged commands that listeners know. */
  #toldPending = ["", "", ""];
  #status: Status = { state: "stopped" };
  #untold: Status[] = [];
  #telling = false;
  /** Another tab leads, and has answered. */
  #follows = false;
  #ignorePage = () => {};
  /** While an asynchronous storage is read. */
  #loading: Promise<void> | undefined;
  /** The conversations on the screen. */
  readonly #open = new Set<Reading>();

  /** @throws TypeError if an option is invalid. */
  constructor(options: BadgedOptions) {
    const base = baseURL(options?.url);
    const { token, user, device, minBackoffMs = 500, maxBackoffMs = 30_000 } = options;
    toFunction("token", token);
    if (device !== undefined) toText("device", device);
    if (!(minBackoffMs > 0 && maxBackoffMs > 0)) {
      throw new TypeError("minBackoffMs and maxBackoffMs must be above 0");
    }
    const environment = { ...defaultEnvironment(), ...options };
    const name =
      user === undefined ? undefined : `badged ${base} ${toText("user", user, MAX_USER_BYTES)}`;
    this.#environment = environment;
    this.#storage = new Storage(name, environment, () => this.#state.snapshot);
    this.#settling = new Settling(environment.clock, () => this.#refresh());
    this.#outbox = new Outbox({
      clock: environment.clock,
      onAccept: (command) => {
        // A follower learns from the leader what is settling.
        if (!this.#follows) this.#settle(command);
      },
      onChange: () => {
        if (this.#tabs.leads) this.#storage.saveCommands(this.#outbox.commands);
        this.#refresh();
      },
    });
    this.#link = new Link({
      environment,
      base,
      token,
      minBackoffMs,
      maxBackoffMs,
      fallback: options.fallback ?? true,
      held: () => this.#state.view.badge,
      device,
      onState: (frame) => this.#receive(frame),
      onAnswer: (answer) => this.#outbox.answer(answer),
      onStatus: (status) => this.#lose(status),
    });
    this.#tabs = new Tabs(name, environment, {
      onLead: () => this.#lead(),
      onDepose: () => this.#depose(),
      onMessage: (message) => this.#hear(message),
    });
    this.#loading = this.#storage.load()?.then(() => {
      this.#loading = undefined;
      this.#restore();
      if (this.#status.state === "connecting") this.#join();
    });
    if (this.#loading === undefined) this.#restore();
  }

  /** Takes over what the last visit has stored. */
  #restore(): void {
    const kept = this.#storage.loadState();
    if (kept !== undefined) this.#state.apply(kept);
    this.#others = { ...NONE, waiting: this.#storage.loadCommands() };
    this.#look();
  }

  /** The badge with pending commands applied; undefined before the first state. */
  get badge(): Badge | undefined {
    return this.#view.badge;
  }

  /** By id, the conversations that the server has listed, without those that the user left. */
  get conversations(): ReadonlyMap<string, Conversation> {
    return listed(this.#view.conversations);
  }

  /**
   * The user has more non-empty conversations than the server sends at once. Page
   * through the HTTP API for them. The total counts them.
   */
  get more(): boolean {
    return this.#view.more;
  }

  get status(): Status {
    return this.#status;
  }

  /**
   * The commands of all tabs that are not yet durable on the server, in order. A
   * {@link Badged.readAll} appears as the reads that it stands for, a {@link Badged.seenAll} as `seen`s.
   */
  get waiting(): readonly Command[] {
    return this.#pending.waiting;
  }

  /** Calls the listener at every such event. The returned function removes it. */
  on<Name extends keyof BadgedEvents>(
    event: Name,
    listener: (value: BadgedEvents[Name]) => void,
  ): () => void {
    toFunction("listener", listener);
    return this.#emitter.on(event, listener);
  }

  /**
   * Connects, and stays connected until `stop` or a refusal. Emits the stored
   * state of the last visit at once. Do not call it in server-side rendering.
   */
  start(): void {
    const { state } = this.#status;
    if (state !== "stopped" && state !== "refused") return;
    if (this.#loading === undefined) this.#join();
    else this.#setStatus({ state: "connecting" });
  }

  #join(): void {
    this.#refresh();
    const { page } = this.#environment;
    const ignoreReturn = page?.onReturn(() => this.#tabs.leads && this.#link.hurry());
    const ignoreLeave = page?.onLeave(() => this.#storage.flush());
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

  /** Disconnects. The state and the pending commands stay for the next `start`. */
  stop(): void {
    if (this.#status.state === "stopped") return;
    this.#link.stop();
    this.#rest();
    this.#tabs.leave();
    this.#setStatus({ state: "stopped" });
  }

  /**
   * Stops all tabs of the user, drops the pending commands, and removes all that
   * is stored in the browser. Call it when the user signs out. Listeners receive
   * a total of 0.
   */
  forget(): void {
    this.#tabs.post({ m: "forget" });
    this.#forget();
  }

  #forget(): void {
    this.stop();
    this.#tabs.leave();
    // Listeners also get zeros for a stored state that was never emitted.
    this.#told = this.#view;
    this.#state = new State();
    this.#others = NONE;
    this.#settling.clear();
    this.#outbox.clear();
    this.#storage.forget();
    this.#link.forget();
    this.#refresh();
  }

  /**
   * Marks a conversation as read up to a message. The numbers change at once. The
   * promise resolves once the read is durable on the server. While disconnected
   * it stays pending without limit, unless `options` has a signal.
   *
   * It rejects with a {@link BadgedError} if the server refuses the read or
   * `forget` drops it, which need not be handled, and with a TypeError, which is
   * reported if it is not, if an argument is invalid.
   */
  read(conversationId: string, upToSeq: Seq | string, options?: WaitOptions): Promise<void> {
    return heed(options, () => this.#outbox.add(upTo("read", conversationId, upToSeq)));
  }

  /**
   * Marks everything, or everything that a category covers, as read. While
   * disconnected this covers what the client holds: later messages, and
   * conversations that it does not hold (see {@link Badged.more}), stay unread. The
   * promise behaves as in {@link Badged.read}.
   */
  readAll(category?: string, options?: WaitOptions): Promise<void> {
    const isUnread = ({ unread, markedUnread }: Conversation) => unread > 0 || markedUnread;
    return this.#all("read", category, isUnread, options);
  }

  /**
   * The user has seen that there is something up to a message, which stays unread:
   * `unseen` falls at once. The promise behaves as in {@link Badged.read}.
   */
  seen(conversationId: string, upToSeq: Seq | string, options?: WaitOptions): Promise<void> {
    return heed(options, () => this.#outbox.add(upTo("seen", conversationId, upToSeq)));
  }

  /** Marks everything, or everything that a category covers, as seen; otherwise as {@link Badged.readAll}. */
  seenAll(category?: string, options?: WaitOptions): Promise<void> {
    return this.#all("seen", category, ({ unread, seen }) => unread > seen, options);
  }

  /**
   * Sets the level of a category, for the conversations that it covers and that have
   * none of their own, also those to come; `default` unsets it. The numbers change once
   * the server has applied it. The promise behaves as in {@link Badged.read}.
   */
  setLevel(category: string, level: Level, options?: WaitOptions): Promise<void> {
    return heed(options, () =>
      this.#outbox.add(toCommand({ t: "level", id: randomId(), category, level })),
    );
  }

  #all(
    t: "read" | "seen",
    category: string | undefined,
    applies: (conversation: Conversation) => boolean,
    options?: WaitOptions,
  ): Promise<void> {
    return heed(options, () => {
      const all = toCommand({ t: `${t}_all`, id: randomId(), category });
      const each = [...this.conversations.values()]
        .filter((one) => category === undefined || covers(category, one.category))
        .filter(applies)
        .map(({ conversationId, lastSeq }) => upTo(t, conversationId, lastSeq));
      if (this.#status.state !== "online") return this.#outbox.addAll(each);
      return this.#outbox.add(all, each);
    });
  }

  /**
   * What the conversations of the client that pass a filter add to the badge, as for a
   * folder that the user made. Without `complete`, the user has more of them: see
   * {@link Badged.more}.
   */
  count(filter: (conversation: Conversation) => boolean): Numbers & { readonly complete: boolean } {
    const { badge, more } = this.#view;
    const shares = [...this.conversations.values()]
      .filter(filter)
      .map((one) => shareOf(one, badge?.levels ?? {}) ?? NO_NUMBERS);
    const numbers = shares.reduce((all, share) => sum(all, share), NO_NUMBERS);
    return { ...numbers, complete: badge !== undefined && !more };
  }

  /**
   * The conversation is on the screen. Until `close`, the client reads it while
   * the page is visible and has the focus, up to the last message delivered or
   * shown; what arrives meanwhile is read when the user is back.
   *
   * {@link Badged.markUnread} in this client ends it too: the user wants to come
   * back to the conversation. A mark set elsewhere ends at the next `open`.
   *
   * @throws TypeError if an argument is invalid.
   */
  open(conversationId: string, options: OpenOptions = {}): OpenConversation {
    const reading: Reading = new Reading(toText("conversationId", conversationId), options, {
      client: this,
      page: this.#environment.page,
      clock: this.#environment.clock,
      onClose: () => this.#open.delete(reading),
    });
    this.#open.add(reading);
    return reading;
  }

  /**
   * A list is on the screen, as behind a bell: of a category, or of everything. Until
   * `close`, what arrives in it is seen while the user looks, as {@link Badged.open}
   * reads. It stays unread.
   *
   * @throws TypeError if the category is invalid.
   */
  openCategory(category?: string): OpenCategory {
    const { page, clock } = this.#environment;
    if (category !== undefined) toCategory(category);
    return new Seeing(category, { client: this, page, clock });
  }

  /**
   * Makes the conversation count at least 1 until the next read. With `seqs`, these
   * messages, which the user has read, count again instead; in a room, with `fromSeq`,
   * those from there on. The numbers then change once the server has applied it. The
   * promise behaves as in {@link Badged.read}. A frame holds 150 seqs, so more than
   * these take several commands.
   */
  markUnread(conversationId: string, options?: MarkOptions): Promise<void> {
    return heed(options, () => {
      const { seqs, fromSeq } = options ?? {};
      const left = seqs === undefined ? [] : toMessages(seqs, 1000);
      const commands: Command[] = [];
      do {
        const some = seqs && left.splice(0, MAX_SEQS);
        const mark = { t: "mark_unread", id: randomId(), conversationId, seqs: some, fromSeq };
        commands.push(toCommand(mark));
      } while (left.length > 0);
      for (const reading of this.#open) {
        if (reading.conversationId === conversationId) reading.close();
      }
      return this.#outbox.addAll(commands);
    });
  }

  /** This tab becomes the leader. */
  #lead(): void {
    this.#follows = false;
    // Commands of other tabs and of the last visit. Load them first: close overwrites them.
    const left = this.#storage.loadCommands((error) =>
      console.warn(`badged: a stored command is dropped: ${error}`),
    );
    this.#outbox.close();
    this.#outbox.addFirst(left);
    for (const command of this.#others.settling) this.#settle(command);
    this.#others = NONE;
    this.#tabs.post({ m: "status", status: { state: "connecting" }, elected: true });
    this.#link.start();
  }

  #settle(command: Command): void {
    this.#settling.add(command, this.#state.view);
  }

  /** Another tab has become the leader because this one was frozen. */
  #depose(): void {
    this.#link.stop();
    this.#outbox.close();
    this.#settling.clear();
    this.#setStatus({ state: "connecting" });
    this.#tabs.post({ m: "hello" });
  }

  /** Undoes `start`, but stays in touch with the other tabs. */
  #rest(): void {
    this.#storage.flush();
    this.#ignorePage();
    this.#follows = false;
    this.#settling.clear();
    this.#outbox.close();
  }

  /** Applies a state frame of the server; false if it does not apply. */
  #receive(frame: StateFrame): boolean {
    const base = this.#state.view.badge?.version ?? 0;
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;

    if (applied === "applied") {
      this.#storage.saveState();
      this.#tabs.post({ m: "state", frame, base });
    }
    if (this.#status.state === "online") {
      this.#refresh();
    } else {
      this.#outbox.open((command) => this.#link.send(encodeCommand(command)));
      this.#setStatus({ state: "online" });
    }
    return true;
  }

  /** The connection is lost or refused. */
  #lose(status: Status): void {
    this.#outbox.close();
    if (status.state === "refused") {
      this.#rest();
      // A follower may have a better token: let it lead. This tab still
      // receives `forget`.
      this.#tabs.yield();
    }
    this.#setStatus(status);
  }

  /** Handles a message of another tab. */
  #hear(message: TabMessage): void {
    const { leads } = this.#tabs;
    if (message.m === "forget") this.#forget();
    else if (this.#status.state === "refused") return;
    else if (message.m === "hello" || message.m === "command") {
      if (leads) this.#serve(message);
    } else if (!leads) {
      this.#follow(message);
    }
  }

  #serve(message: Extract<TabMessage, { m: "hello" | "command" }>): void {
    if (message.m === "command") {
      const { id } = message.command;
      // A tab with another release may send what this one does not know.
      heed(undefined, () =>
        this.#outbox.add(toCommand(message.command), message.reads.map(toCommand)),
      ).then(
        () => this.#tabs.post({ m: "answer", answer: { t: "ok", id, expiresInMs: 0 } }),
        ({ code = "invalid", message }: BadgedError) =>
          this.#tabs.post({ m: "answer", answer: { t: "error", id, code, message, retryMs: 0 } }),
      );
      return;
    }
    const frame = this.#state.snapshot;
    if (frame !== undefined) this.#tabs.post({ m: "state", frame });
    this.#tabs.post({ m: "pending", ...this.#pending });
    this.#tabs.post({ m: "status", status: this.#status, elected: false });
  }

  #follow(message: Exclude<TabMessage, { m: "hello" | "command" | "forget" }>): void {
    if (message.m === "answer") {
      this.#outbox.answer(message.answer);
    } else if (message.m === "pending") {
      this.#others = message;
      this.#refresh();
    } else if (message.m === "status") {
      if (message.elected || !this.#follows) {
        this.#follows = true;
        this.#others = NONE;
        this.#outbox.close();
        this.#outbox.open(
          (command, reads) => this.#tabs.post({ m: "command", command, reads }),
          true,
        );
      }
      this.#setStatus(message.status);
    } else {
      this.#copy(message);
    }
  }

  /** Applies a state of the leader. */
  #copy({ frame, base }: Extract<TabMessage, { m: "state" }>): void {
    const held = this.#state.view.badge;
    const sameEpoch = held?.epoch === frame.badge.epoch;
    // It answers another tab, or comes from a former leader.
    if (base === undefined && sameEpoch && frame.badge.version <= held.version) return;
    const complete = frame.t === "snapshot" || (sameEpoch && held.version >= (base ?? 0));
    const applied = complete ? this.#state.apply(frame) : "foreign";
    if (applied === "foreign") this.#tabs.post({ m: "hello" });
    else this.#refresh();
  }

  /** The commands known to this tab that the server's state does not reflect. */
  get #pending(): Pending {
    const { waiting, merged, settling } = this.#others;
    // The leader determines the order of commands from several tabs.
    const known = new Set([...merged, ...[...waiting, ...settling].map(({ id }) => id)]);
    return {
      merged: [...merged, ...this.#outbox.merged],
      waiting: [...waiting, ...this.#outbox.commands.filter(({ id }) => !known.has(id))],
      settling: [...settling, ...this.#settling.commands],
    };
  }

  /** Recomputes the view. */
  #look(): void {
    this.#settling.settle(this.#state.view);
    const { waiting, settling } = this.#pending;
    const next = overlay(this.#state.view, [...settling, ...waiting]);
    this.#view = difference(this.#view, next).view;
  }

  /**
   * Recomputes the view and calls the listeners. Changes that listeners make are
   * emitted afterwards, by the same call.
   */
  #refresh(): void {
    if (this.#telling) return;
    this.#telling = true;
    let changed = true;
    while (changed) {
      this.#look();
      const statuses = this.#untold.splice(0);
      const { conversations, badge } = difference(this.#told, this.#view);
      this.#told = this.#view;
      for (const status of statuses) this.#emitter.emit("status", status);
      for (const conversation of conversations) this.#emitter.emit("conversation", conversation);
      if (badge !== undefined) this.#emitter.emit("total", badge);
      const moved = this.#tellPending();
      changed = moved || statuses.length + conversations.length > 0 || badge !== undefined;
    }
    this.#telling = false;
  }

  #tellPending(): boolean {
    const pending = this.#pending;
    const idsOf = (commands: readonly Command[]) => commands.map(({ id }) => id).join(" ");
    const [waiting, settling] = [idsOf(pending.waiting), idsOf(pending.settling)];
    const merged = pending.merged.join(" ");
    const [toldWaiting, toldSettling, toldMerged] = this.#toldPending;
    if (waiting === toldWaiting && settling === toldSettling && merged === toldMerged) return false;
    this.#toldPending = [waiting, settling, merged];
    if (this.#tabs.leads) this.#tabs.post({ m: "pending", ...pending });
    if (waiting !== toldWaiting) this.#emitter.emit("waiting", pending.waiting);
    return true;
  }

  #setStatus(status: Status): void {
    this.#status = status;
    this.#untold.push(status);
    if (this.#tabs.leads) this.#tabs.post({ m: "status", status, elected: false });
    this.#refresh();
  }
}

function upTo(t: "read" | "seen", conversationId: string, upToSeq: Seq | string): Command {
  // A room without messages, whose last seq is 0, can be marked.
  const seq = seqOf("upToSeq", upToSeq) || 1;
  return toCommand({ t, id: randomId(), conversationId, upToSeq: seq });
}
