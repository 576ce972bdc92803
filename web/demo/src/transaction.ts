import { plural } from "../../page/dom.js";
import type { EventLog } from "./log.js";
import type { DemoServer, TransactionState } from "./server.js";
import { TimedButton } from "./timed.js";

const OPEN_MS = 120_000;

/** The button that opens a transaction and leaves it open for a while, or ends it earlier. */
export class TransactionButton {
  readonly #button: TimedButton;
  readonly #server: DemoServer;
  readonly #log: EventLog;
  #eventsBefore = 0;

  constructor(button: HTMLButtonElement, server: DemoServer, log: EventLog) {
    this.#server = server;
    this.#log = log;
    this.#button = new TimedButton(button, {
      offer: "Open a long transaction",
      end: "End the transaction",
      ms: OPEN_MS,
      set: (ms) => server.openTransaction(ms),
      onOver: () => void this.sync(),
    });
  }

  /** Fetches the state of the transaction. */
  async sync(): Promise<void> {
    const state = await this.#server.transaction().catch(() => undefined);
    if (state !== undefined) this.show(state);
  }

  show({ open_ms, transaction_id }: TransactionState): void {
    const change = this.#button.show(open_ms);
    if (change === "starts") {
      this.#eventsBefore = this.#log.total;
      this.#log.note(
        "long transaction opened",
        `Transaction ${transaction_id} has written and stays open; no badge waits for it`,
      );
    } else if (change === "ends") {
      this.#log.note(
        "long transaction ended",
        `Meanwhile ${plural(this.#log.total - this.#eventsBefore, "event")} went into the log`,
      );
    }
  }
}
