import type { Environment } from "./environment.js";
import { type Command, decodeFrame, encodeSnapshot, type StateFrame, stringify } from "./frames.js";
import { toSeq } from "./seq.js";

// The state is written at most as often: it may be some 100 KB.
const SAVE_MS = 1_000;

/**
 * Keeps the last state, and what waits to be sent, from one visit to the next.
 * Storage that is full, forbidden or spoilt counts as empty.
 *
 * @internal
 */
export class Keeper {
  readonly #name: string | undefined;
  readonly #environment: Environment;
  readonly #state: () => StateFrame | undefined;
  #cancelSave: (() => void) | undefined;

  /** Without a name it keeps nothing. */
  constructor(
    name: string | undefined,
    environment: Environment,
    state: () => StateFrame | undefined,
  ) {
    this.#name = name;
    this.#environment = environment;
    this.#state = state;
  }

  loadState(): StateFrame | undefined {
    return this.#read("state", (text) => {
      const frame = decodeFrame(text);
      return frame?.t === "snapshot" ? frame : undefined;
    });
  }

  loadCommands(): readonly Command[] {
    const commands = this.#read("commands", (text) =>
      (JSON.parse(text) as Command[]).map((command) =>
        command.t === "read" ? { ...command, upToSeq: toSeq(command.upToSeq) } : command,
      ),
    );
    return commands ?? [];
  }

  /** Keeps the state, soon. */
  saveState(): void {
    this.#cancelSave ??= this.#environment.clock.after(SAVE_MS, () => this.flush());
  }

  saveCommands(commands: readonly Command[]): void {
    this.#write("commands", commands.length > 0 ? stringify(commands) : undefined);
  }

  /** Keeps at once what was to be kept soon. */
  flush(): void {
    if (this.#cancelSave === undefined) return;
    this.#cancelSave();
    this.#cancelSave = undefined;
    const frame = this.#state();
    if (frame !== undefined) this.#write("state", encodeSnapshot(frame));
  }

  forget(): void {
    this.#cancelSave?.();
    this.#cancelSave = undefined;
    for (const part of ["state", "commands"]) this.#write(part, undefined);
  }

  #read<T>(part: string, parse: (text: string) => T): T | undefined {
    try {
      const text = this.#storage?.getItem(`${this.#name} ${part}`);
      return text ? parse(text) : undefined;
    } catch {
      return undefined;
    }
  }

  #write(part: string, text: string | undefined): void {
    const key = `${this.#name} ${part}`;
    try {
      if (text === undefined) this.#storage?.removeItem(key);
      else this.#storage?.setItem(key, text);
    } catch {
      // Then the badge shows a moment later next time.
    }
  }

  get #storage() {
    return this.#name === undefined ? null : this.#environment.storage;
  }
}
