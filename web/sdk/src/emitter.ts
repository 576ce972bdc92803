/**
 * Calls listeners by the name of an event; `Events` says what each is told.
 *
 * @internal
 */
export class Emitter<Events extends object> {
  readonly #listeners = new Map<keyof Events, Set<(value: never) => void>>();

  /** Returns the function that takes the listener away again. */
  on<Name extends keyof Events>(event: Name, listener: (value: Events[Name]) => void): () => void {
    const listeners = this.#listeners.get(event) ?? new Set();
    this.#listeners.set(event, listeners);
    // One entry per call, so that a function given twice is also taken away twice.
    const entry = (value: Events[Name]) => listener(value);
    listeners.add(entry);
    return () => listeners.delete(entry);
  }

  emit<Name extends keyof Events>(event: Name, value: Events[Name]): void {
    for (const listener of [...(this.#listeners.get(event) ?? [])]) {
      try {
        (listener as (value: Events[Name]) => void)(value);
      } catch (error) {
        // A fault of the app's must not stop the others from hearing, nor this
        // client from working; it goes where uncaught errors go.
        queueMicrotask(() => {
          throw error;
        });
      }
    }
  }
}
