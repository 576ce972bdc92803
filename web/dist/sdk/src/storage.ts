import { toCommand } from "./arguments.js";
import type { AsyncStorageLike, Environment, StorageLike } from "./environment.js";
import { type Command, decodeFrame, encodeSnapshot, type StateFrame, stringify } from "./frames.js";

// Least time between two writes of the state, which may have some 100 KB.
const SAVE_MS = 1_000;

/**
 * One entry of the storage. If the storage is full or forbidden, or the entry is
 * corrupt, it reads as empty. That of an asynchronous storage is read once, by `load`,
 * and written in order.
 *
 * @internal
 */
export class StorageEntry {
  readonly #storage: StorageLike | AsyncStorageLike | null;
  readonly #key: string;
  /** Of an asynchronous storage: what it holds; undefined before it was read or written. */
  #held: string | null | undefined;
  #writes: Promise<unknown> | undefined;

  constructor(storage: StorageLike | AsyncStorageLike | null, key: string) {
    this.#storage = storage;
    this.#key = key;
  }

  /** Reads an asynchronous storage. Others are read at once, and it returns undefined. */
  load(): Promise<void> | undefined {
    const text = this.#get();
    if (typeof text !== "object" || text === null) return undefined;
    const keep = (read: string | null) => {
      if (this.#held === undefined) this.#held = read;
    };
    this.#writes = text.then(keep, () => keep(null));
    return this.#writes as Promise<void>;
  }

  read<T>(parse: (text: string) => T): T | undefined {
    const text = this.#writes === undefined ? this.#get() : this.#held;
    try {
      return typeof text === "string" && text !== "" ? parse(text) : undefined;
    } catch {
      return undefined;
    }
  }

  write(text: string | undefined): void {
    if (this.#writes === undefined) {
      this.#put(text);
      return;
    }
    this.#held = text ?? null;
    // Writes that wait all write what is held by then.
    this.#writes = this.#writes.then(() => this.#put(this.#held ?? undefined)).catch(() => {});
  }

  #get() {
    try {
      return this.#storage?.getItem(this.#key);
    } catch {
      return null;
    }
  }

  #put(text: string | undefined) {
    try {
      if (text === undefined) return this.#storage?.removeItem(this.#key);
      return this.#storage?.setItem(this.#key, text);
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

  /** Resolves once an asynchronous storage was read; undefined for others. */
  load(): Promise<unknown> | undefined {
    const loads = [this.#state.load(), this.#commands.load()];
    return loads.some((load) => load) ? Promise.all(loads) : undefined;
  }

  loadState(): StateFrame | undefined {
    return this.#state.read((text) => {
      const frame = decodeFrame(text);
      return frame?.t === "snapshot" ? frame : undefined;
    });
  }

  /**
   * The commands of the last visit. It leaves out what this release cannot send, such as
   * commands of a newer one, and calls `onBad` with each reason.
   */
  loadCommands(onBad = (_: unknown) => {}): readonly Command[] {
    const stored = this.#commands.read((text) => JSON.parse(text) as unknown[]);
    if (!Array.isArray(stored)) return [];
    return stored.flatMap((command) => {
      try {
        return toCommand(command);
      } catch (error) {
        onBad(error);
        return [];
      }
    });
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
