import type { Clock } from "./environment.js";
import type { Answer, Command } from "./frames.js";

// The server closes a connection with more than 64 unread answers.
const MAX_IN_FLIGHT = 32;
// Longest pause accepted from the server. A longer one could overflow a timer.
const MAX_RETRY_MS = 3_600_000;

/** Why a command was refused or dropped. */
export class BadgedError extends Error {
  override name = "BadgedError";

  /** The error code of the server, or `forgotten` after {@link Badged.forget}. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Entry {
  command: Command;
  /** How often it was sent. Above 0, the server may have applied it. */
  tries: number;
  /** Whether it waits for its answer or for the pause before the next try. */
  busy: boolean;
  /** The reads, or seens, that a `read_all`, or `seen_all`, stood for when the user issued it. */
  readonly reads: readonly Command[];
  /** The ids of the commands that merged into this entry. */
  readonly merged: string[];
  readonly settled: Promise<void>;
  resolve(): void;
  reject(error: BadgedError): void;
}

type Send = (command: Command, reads: readonly Command[]) => void;

/** @internal */
export interface OutboxOptions {
  readonly clock: Clock;
  /** Called when the pending commands have changed. */
  readonly onChange: () => void;
  /** Called before onChange, with each command that the server accepted. */
  readonly onAccept: (command: Command) => void;
}

/**
 * The commands that are not yet durable on the server, in order. Lost ones are
 * sent again under the same id. Commands of one conversation never overtake each
 * other.
 *
 * @internal
 */
export class Outbox {
  readonly #options: OutboxOptions;
  #entries: Entry[] = [];
  #send: Send | undefined;
  #relayed = false;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /** The pending commands, in order, with each command for all as those that it stands for. */
  get commands(): readonly Command[] {
    return this.#entries.flatMap(({ command, reads }) => (isForAll(command) ? reads : command));
  }

  /** The ids of the pending commands that merged into others. */
  get merged(): readonly string[] {
    return this.#entries.flatMap(({ merged }) => merged);
  }

  /**
   * Adds a command, and resolves once it is durable. A command that is already
   * pending, or that merges into one not yet sent, settles together with it.
   * `reads` are the commands that one for all stands for.
   */
  add(command: Command, reads: readonly Command[] = []): Promise<void> {
    const { settled } = this.#take(command, reads);
    this.#options.onChange();
    this.#flush();
    return settled;
  }

  /** Adds commands, and resolves once all are durable. */
  addAll(commands: readonly Command[]): Promise<void> {
    const all = Promise.all(commands.map((command) => this.#take(command, []).settled));
    this.#options.onChange();
    this.#flush();
    return quiet(all.then(() => {}));
  }

  /** Adds commands of an earlier time, before those that are pending. */
  addFirst(commands: readonly Command[]): void {
    const later = this.#entries;
    this.#entries = [];
    for (const command of commands) {
      const known = later.find(({ command: { id } }) => id === command.id);
      if (known === undefined) this.#take(command, []);
      else this.#entries.push(known);
    }
    this.#entries.push(...later.filter((entry) => !this.#entries.includes(entry)));
    this.#options.onChange();
    this.#flush();
  }

  /**
   * A connection is available: sends everything, in order. With `relayed`, the
   * recipient is an outbox too, which keeps the order itself: it gets every
   * command at once, and keeps it even if this tab closes.
   */
  open(send: Send, relayed = false): void {
    this.#send = send;
    this.#relayed = relayed;
    for (const entry of this.#entries) entry.busy = false;
    this.#flush();
  }

  /**
   * The connection is lost, and with it the answers. A `read_all` sent later
   * would read messages that the user has not seen, so its reads replace it.
   * So it is with `seen_all`.
   */
  close(): void {
    this.#send = undefined;
    const entries = this.#entries;
    this.#entries = [];
    for (const entry of entries) {
      if (!isForAll(entry.command)) {
        this.#entries.push(entry);
        continue;
      }
      const all = entry.reads.map((read) => this.#append(read, []).settled);
      void Promise.all(all).then(entry.resolve, entry.reject);
    }
    this.#options.onChange();
  }

  answer(answer: Answer): void {
    const entry = this.#entries.find(({ command }) => command.id === answer.id);
    if (entry === undefined) return;
    if (answer.t === "error" && answer.retryMs > 0) {
      const { tries } = entry;
      this.#options.clock.after(Math.min(answer.retryMs, MAX_RETRY_MS), () => {
        // It may have been sent again over a new connection.
        if (entry.tries === tries) entry.busy = false;
        this.#flush();
      });
      return;
    }
    this.#entries = this.#entries.filter((other) => other !== entry);
    if (answer.t === "ok") {
      for (const accepted of [entry.command, ...entry.reads]) this.#options.onAccept(accepted);
      entry.resolve();
    } else entry.reject(new BadgedError(answer.code, answer.message));
    this.#options.onChange();
    this.#flush();
  }

  /** Drops all commands and rejects their promises. */
  clear(): void {
    const entries = this.#entries;
    this.#entries = [];
    for (const { reject } of entries)
      reject(new BadgedError("forgotten", "forget() dropped the command"));
    this.#options.onChange();
  }

  #take(command: Command, reads: readonly Command[]): Entry {
    const known = this.#entries.find(({ command: { id } }) => id === command.id);
    return known ?? this.#merge(command) ?? this.#append(command, reads);
  }

  /** Merges the command into the last entry of its conversation, if possible. */
  #merge(command: Command): Entry | undefined {
    if (about(command) === undefined) return undefined;
    const last = this.#entries
      .filter(({ command: other }) => [undefined, about(command)].includes(about(other)))
      .at(-1);
    if (last === undefined || last.tries > 0 || last.command.t !== command.t) return undefined;
    if (
      "upToSeq" in command &&
      "upToSeq" in last.command &&
      command.upToSeq > last.command.upToSeq
    ) {
      last.merged.push(last.command.id);
      last.command = command;
    } else if (ofMessages(command) || ofMessages(last.command)) {
      return undefined;
    } else {
      last.merged.push(command.id);
    }
    return last;
  }

  #append(command: Command, reads: readonly Command[]): Entry {
    let resolve = () => {};
    let reject = (_: BadgedError) => {};
    const settled = quiet(
      new Promise<void>((yes, no) => {
        resolve = yes;
        reject = no;
      }),
    );
    const entry = { command, reads, merged: [], tries: 0, busy: false, settled, resolve, reject };
    this.#entries.push(entry);
    return entry;
  }

  #flush(): void {
    // The conversations of earlier entries; undefined stands for all.
    const ahead = new Set<string | undefined>();
    for (const entry of [...this.#entries]) {
      if (this.#send === undefined) return;
      if (!this.#relayed) {
        if (ahead.size >= MAX_IN_FLIGHT) return;
        const id = about(entry.command);
        const blocked =
          ahead.has(undefined) || ahead.has(id) || (id === undefined && ahead.size > 0);
        ahead.add(id);
        if (blocked) continue;
      }
      if (entry.busy) continue;
      entry.busy = true;
      entry.tries++;
      this.#send(entry.command, entry.reads);
    }
  }
}

/** Marks a rejection as handled: callers may ignore the promise. @internal */
export function quiet<T>(promise: Promise<T>): Promise<T> {
  promise.catch(() => {});
  return promise;
}

/** Whether a command marks messages, not the conversation. @internal */
export function ofMessages(command: Command): boolean {
  return "seqs" in command || "fromSeq" in command;
}

/** The conversation of a command; undefined stands for all. */
function about(command: Command): string | undefined {
  return "conversationId" in command ? command.conversationId : undefined;
}

/** Whether a command is about all that there is as the server applies it. */
function isForAll({ t }: Command): boolean {
  return t === "read_all" || t === "seen_all";
}

/**
 * A random UUID; `crypto.randomUUID` is missing on pages without TLS, and React
 * Native has no `crypto`. It must be unique among the commands of a user, not secret.
 *
 * @internal
 */
export function randomId(): string {
  return "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) => {
    const random = globalThis.crypto?.getRandomValues(new Uint8Array(1))[0] ?? Math.random() * 256;
    // The 8 is the UUID variant: its upper two bits stay.
    return (Number(digit) ^ (random & (15 >> (Number(digit) / 4)))).toString(16);
  });
}
