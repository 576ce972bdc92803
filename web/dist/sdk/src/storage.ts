import type { Environment, StorageLike } from "./environment.js";
import { type Command, decodeFrame, encodeSnapshot, type StateFrame, stringify } from "./frames.js";
import { toSeq } from "./seq.js";

// Least time between two writes of the state, which may have some 100 KB.
const SAVE_MS = 1_000;

/**
 * One entry of the browser's storage. If the storage is full or forbidden, or
 * the entry is corrupt, it reads as empty.
 *
 * @internal
 */
export class StorageEntry {
  readonly #storage: StorageLike | null;
  readonly #key: string;

  constructor(storage: StorageLike | null, key: string) {
    this.#storage = storage;
    this.#key = key;
  }

  read<T>(parse: (text: string) => T): T | undefined {
    try {
      const text = this.#storage?.getItem(this.#key);
      return text ? parse(text) : undefined;
    } catch {
      return undefined;
    }
  }

  write(text: string | undefined): void {
    try {
      if (text === undefined) this.#storage?.removeItem(this.#key);
      else this.#storage?.setItem(this.#key, text);
    } catch {
      // The next visit starts without this entry.
    }
  }
}

/**
 * Stores the last state and the pending commands of a user for the next visit.
 *
 * @internal
 */
export class Storage {
  readonly #environment: Environment;
  readonly #snapshot: () => StateFrame | undefined;
  readonly #state: StorageEntry;
  readonly #commands: StorageEntry;
  #cancelSave: (() => void) | undefined;

  /** Without a name it stores nothing. */
  constructor(
    name: string | undefined,
    environment: Environment,
    snapshot: () => StateFrame | undefined,
  ) {
    const storage = name === undefined ? null : environment.storage;
    this.#environment = environment;
    this.#snapshot = snapshot;
    this.#state = new StorageEntry(storage, `${name} state`);
    this.#commands = new StorageEntry(storage, `${name} commands`);
  }

  loadState(): StateFrame | undefined {
    return this.#state.read((text) => {
      const frame = decodeFrame(text);
      // An earlier build stored no conversations, which the server sends again.
      const complete = text.includes('"unread_conversations":');
      return frame?.t === "snapshot" && complete ? frame : undefined;
    });
  }

  loadCommands(): readonly Command[] {
    const commands = this.#commands.read((text) =>
      (JSON.parse(text) as Command[]).map((command) => {
        if (command.t === "read") return { ...command, upToSeq: toSeq(command.upToSeq) };
        if (command.t !== "mark_unread" || command.seqs === undefined) return command;
        return { ...command, seqs: command.seqs.map(toSeq) };
      }),
    );
    return commands ?? [];
  }

  /** Writes the state within SAVE_MS. */
  saveState(): void {
    this.#cancelSave ??= this.#environment.clock.after(SAVE_MS, () => this.flush());
  }

  saveCommands(commands: readonly Command[]): void {
    this.#commands.write(commands.length > 0 ? stringify(commands) : undefined);
  }

  /** Writes a state that saveState scheduled at once. */
  flush(): void {
    if (this.#cancelSave === undefined) return;
    this.#cancelSave();
    this.#cancelSave = undefined;
    const frame = this.#snapshot();
    if (frame !== undefined) this.#state.write(encodeSnapshot(frame));
  }

  forget(): void {
    this.#cancelSave?.();
    this.#cancelSave = undefined;
    this.#state.write(undefined);
    this.#commands.write(undefined);
  }
}
