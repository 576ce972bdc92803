import { setText } from "../../page/dom.js";
import type { EventLog } from "./log.js";
import type { DemoServer, LinkState } from "./server.js";

const CUT_MS = 12_000;

/** The button that cuts the bus link for a while, or restores it earlier. */
export class BusButton {
  readonly #button: HTMLButtonElement;
  readonly #text: Element;
  readonly #server: DemoServer;
  readonly #log: EventLog;
  readonly #onCut: (cut: boolean) => void;
  #until = 0;
  #lostBefore = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(
    button: HTMLButtonElement,
    server: DemoServer,
    log: EventLog,
    onCut: (cut: boolean) => void,
  ) {
    this.#onCut = onCut;
    this.#button = button;
    this.#text = button.lastElementChild ?? button;
    this.#server = server;
    this.#log = log;
    button.addEventListener("click", async () => {
      const cutMs = this.#until > 0 ? 0 : CUT_MS;
      await server.cutLink(cutMs).catch(() => {});
    });
  }

  /** Fetches the state of the link. */
  async sync(): Promise<void> {
    const state = await this.#server.link().catch(() => undefined);
    if (state !== undefined) this.show(state);
  }

  show({ cut_ms, lost }: LinkState): void {
    const wasCut = this.#until > 0;
    this.#until = cut_ms > 0 ? Date.now() + cut_ms : 0;
    if (cut_ms > 0 && !wasCut) {
      this.#lostBefore = lost;
      this.#log.note(
        "bus link cut",
        "Updates are lost until it is restored; only reconciliation finds them",
      );
      this.#timer = setInterval(() => this.#tick(), 250);
    } else if (cut_ms === 0 && wasCut) {
      clearInterval(this.#timer);
      this.#log.note(
        "bus link restored",
        `${lost - this.#lostBefore} updates were lost, but no counts`,
      );
    }
    this.#button.dataset.cut = String(cut_ms > 0);
    this.#onCut(cut_ms > 0);
    this.#draw();
  }

  #tick(): void {
    if (Date.now() < this.#until) this.#draw();
    else void this.sync();
  }

  #draw(): void {
    const seconds = Math.ceil((this.#until - Date.now()) / 1000);
    setText(this.#text, this.#until > 0 ? `Link cut, ${seconds} s` : "Cut the bus link");
  }
}
