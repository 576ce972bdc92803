import type { Clock } from "./environment.js";
import type { Answer, Command } from "./frames.js";

// The server ends a connection that leaves more than 64 answers unread.
const MOST_IN_FLIGHT = 32;

/** Why something the user did was not accepted. */
export class BadgedError extends Error {
  override name = "BadgedError";

  /** The code of the server's error, or `forgotten` after {@link Badged.forget}. */
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

interface Entry {
  command: Command;
  /** How often it was sent. If ever, the server may have it. */
  tries: number;
  /** Whether its answer is on the way, or a pause before the next try. */
  busy: boolean;
  /** What a `read_all` meant when the user said it. */
  readonly reads: readonly Command[];
  readonly settled: Promise<void>;
  resolve(): void;
  reject(error: BadgedError): void;
}

type Send = (command: Command, reads: readonly Command[]) => void;

/** What an outbox needs. @internal */
export interface OutboxOptions {
  readonly clock: Clock;
  /** Called whenever what waits has changed. */
  readonly onChange: () => void;
}

/**
 * What the user did and the server does not yet have for good, in order. It
 * is sent, and sent again after a loss, under ids that tell the server that it
 * is the same. Commands of one conversation never overtake each other.
 *
 * @internal
 */
export class Outbox {
  readonly #options: OutboxOptions;
  #entries: Entry[] = [];
  #send: Send | undefined;

  constructor(options: OutboxOptions) {
    this.#options = options;
  }

  /** What waits, in order. A `read_all` that would come too late is the reads that it meant. */
  get commands(): readonly Command[] {
    return this.#entries.flatMap(({ command, reads }) =>
      command.t === "read_all" ? reads : command,
    );
  }

  /**
   * Takes in a command, and resolves once the server has it for good. One that
   * is known, or that adds nothing to one that was not yet sent, shares that
   * one's fate. A `read_all` brings along the reads that it stands for.
   */
  add(command: Command, reads: readonly Command[] = []): Promise<void> {
    const known = this.#entries.find(({ command: { id } }) => id === command.id);
    const entry = known ?? this.#merge(command) ?? this.#append(command, reads);
    this.#options.onChange();
    this.#flush();
    return entry.settled;
  }

  /** There is a way to the server: everything is sent, in order. */
  open(send: Send): void {
    this.#send = send;
    for (const entry of this.#entries) entry.busy = false;
    this.#flush();
  }

  /**
   * The way is lost, and with it the answers. A `read_all` that comes later
   * would read what the user has not seen, so it becomes reads up to what the
   * user had.
   */
  close(): void {
    this.#send = undefined;
    const entries = this.#entries;
    this.#entries = [];
    for (const entry of entries) {
      if (entry.command.t !== "read_all") {
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
      this.#options.clock.after(answer.retryMs, () => {
        // Another connection may have sent it already.
        if (entry.tries === tries) entry.busy = false;
        this.#flush();
      });
      return;
    }
    this.#entries = this.#entries.filter((other) => other !== entry);
    if (answer.t === "ok") entry.resolve();
    else entry.reject(new BadgedError(answer.code, answer.message));
    this.#options.onChange();
    this.#flush();
  }

  /** Drops everything. */
  clear(): void {
    const entries = this.#entries;
    this.#entries = [];
    for (const { reject } of entries)
      reject(new BadgedError("forgotten", "client was told to forget"));
    this.#options.onChange();
  }

  /** The last entry of the conversation, if it says the same or is made to. */
  #merge(command: Command): Entry | undefined {
    if (command.t === "read_all") return undefined;
    const last = this.#entries
      .filter(({ command: other }) => [undefined, about(command)].includes(about(other)))
      .at(-1);
    if (last === undefined || last.tries > 0 || last.command.t !== command.t) return undefined;
    if (
      command.t === "read" &&
      last.command.t === "read" &&
      command.upToSeq > last.command.upToSeq
    ) {
      last.command = command;
    }
    return last;
  }

  #append(command: Command, reads: readonly Command[]): Entry {
    let resolve = () => {};
    let reject = (_: BadgedError) => {};
    const settled = new Promise<void>((yes, no) => {
      resolve = yes;
      reject = no;
    });
    // Nobody waits for one that another session left behind.
    settled.catch(() => {});
    const entry = { command, reads, tries: 0, busy: false, settled, resolve, reject };
    this.#entries.push(entry);
    return entry;
  }

  #flush(): void {
    // Of the entries further ahead; undefined stands for all conversations.
    const ahead = new Set<string | undefined>();
    for (const entry of [...this.#entries]) {
      if (this.#send === undefined || ahead.size >= MOST_IN_FLIGHT) return;
      const id = about(entry.command);
      const blocked = ahead.has(undefined) || ahead.has(id) || (id === undefined && ahead.size > 0);
      ahead.add(id);
      if (blocked || entry.busy) continue;
      entry.busy = true;
      entry.tries++;
      this.#send(entry.command, entry.reads);
    }
  }
}

/** The conversation that a command is about; undefined stands for all of them. */
function about(command: Command): string | undefined {
  return command.t === "read_all" ? undefined : command.conversationId;
}

/** A random UUID; `crypto.randomUUID` is missing on pages without TLS. @internal */
export function randomId(): string {
  return "10000000-1000-4000-8000-100000000000".replace(/[018]/g, (digit) => {
    const [random = 0] = crypto.getRandomValues(new Uint8Array(1));
    // Of the 8, which says how to read the UUID, two bits stay.
    return (Number(digit) ^ (random & (15 >> (Number(digit) / 4)))).toString(16);
  });
}
