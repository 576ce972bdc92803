/**
 * Calls listeners by event name. `Events` maps each name to its value.
 *
 * @internal
 */
export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<(value: never) => void>>();

  /** Returns the function that removes the listener. */
  on<Name extends keyof Events>(event: Name, listener: (value: Events[Name]) => void): () => void {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners);
    // One entry per call, so that a function added twice is also removed twice.
    const entry = (value: Events[Name]) => listener(value);
    listeners.add(entry);
    return () => listeners.delete(entry);
  }

  emit<Name extends keyof Events>(event: Name, value: Events[Name]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) {
      try {
        (listener as (value: Events[Name]) => void)(value);
      } catch (error) {
        // An error in one listener must stop neither the others nor the client.
        // Report it as uncaught.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
