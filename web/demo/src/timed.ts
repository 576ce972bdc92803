import { setText } from "../../page/dom.js";

/** What a timed button says, and what it does. */
export interface TimedAction {
  /** What the button offers. */
  readonly offer: string;
  /** What it offers until it ends, before the seconds left. */
  readonly end: string;
  readonly ms: number;
  /** Starts it for a time; 0 ends it. */
  readonly set: (ms: number) => Promise<unknown>;
  /** Called when the time is over, to fetch the state. */
  readonly onOver: () => void;
}

/** A button that starts something for a while, shows the time left, and ends it earlier. */
export class TimedButton {
  readonly #button: HTMLButtonElement;
  readonly #text: Element;
  readonly #action: TimedAction;
  #until = 0;
  #timer: ReturnType<typeof setInterval> | undefined;

  constructor(button: HTMLButtonElement, action: TimedAction) {
    this.#button = button;
    this.#text = button.lastElementChild ?? button;
    this.#action = action;
    button.addEventListener("click", async () => {
      await action.set(this.#until > 0 ? 0 : action.ms).catch(() => {});
    });
  }

  /** Shows the time left, and returns whether that starts or ends it. */
  show(ms: number): "starts" | "ends" | undefined {
    const was = this.#until > 0;
    const is = ms > 0;
    this.#until = is ? Date.now() + ms : 0;
    this.#button.dataset.on = String(is);
    if (is && !was) this.#timer = setInterval(() => this.#tick(), 250);
    if (!is) clearInterval(this.#timer);
    this.#draw();
    if (is === was) return undefined;
    return is ? "starts" : "ends";
  }

  #tick(): void {
    if (Date.now() < this.#until) this.#draw();
    else this.#action.onOver();
  }

  #draw(): void {
    const { offer, end } = this.#action;
    const seconds = Math.ceil((this.#until - Date.now()) / 1000);
    setText(this.#text, this.#until > 0 ? `${end} (${seconds} s)` : offer);
  }
}
