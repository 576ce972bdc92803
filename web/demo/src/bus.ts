import { plural } from "../../page/dom.js";
import type { EventLog } from "./log.js";
import type { DemoServer, LinkState } from "./server.js";
import { TimedButton } from "./timed.js";

const CUT_MS = 12_000;

/** The button that cuts the bus link for a while, or restores it earlier. */
export class BusButton {
  readonly #button: TimedButton;
  readonly #server: DemoServer;
  readonly #log: EventLog;
  readonly #onCut: (cut: boolean) => void;
  #lostBefore = 0;

  constructor(
    button: HTMLButtonElement,
    server: DemoServer,
    log: EventLog,
    onCut: (cut: boolean) => void,
  ) {
    this.#onCut = onCut;
    this.#server = server;
    this.#log = log;
    this.#button = new TimedButton(button, {
      offer: "Cut the bus link",
      end: "Restore the bus link",
      ms: CUT_MS,
      set: (ms) => server.cutLink(ms),
      onOver: () => void this.sync(),
    });
  }

  /** Fetches the state of the link. */
  async sync(): Promise<void> {
    const state = await this.#server.link().catch(() => undefined);
    if (state !== undefined) this.show(state);
  }

  show({ cut_ms, lost }: LinkState): void {
    const change = this.#button.show(cut_ms);
    if (change === "starts") {
      this.#lostBefore = lost;
      this.#log.note(
        "bus link cut",
        "Updates are lost until it is restored; only reconciliation finds them",
      );
    } else if (change === "ends") {
      const updates = plural(lost - this.#lostBefore, "update");
      this.#log.note("bus link restored", `It has lost ${updates}, but no counts`);
    }
    this.#onCut(cut_ms > 0);
  }
}
