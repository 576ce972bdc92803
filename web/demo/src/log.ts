import { animate, clockToTheSecond, h, setText } from "../../page/dom.js";
import type { LoggedEvent, User } from "./server.js";

// Older events leave the page.
const KEPT = 150;

/** The log beside the phones: what happened, newest first. */
export class EventLog {
  readonly #list: HTMLElement;
  readonly #count: HTMLElement;
  readonly #seen = new Set<string>();
  #total = 0;
  #effects: HTMLElement | undefined;

  constructor(list: HTMLElement, count: HTMLElement) {
    this.#list = list;
    // It scrolls, so the keyboard must reach it.
    list.tabIndex = 0;
    this.#count = count;
  }

  /** Takes in an event, unless it is known, as after a reconnect. */
  add(event: LoggedEvent): void {
    // One event is a row in the log of each partition that it concerns.
    const name = `${event.position} ${event.source} ${event.id}`;
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    this.#total++;

    this.#put(draw(event));
    setText(this.#count, `${this.#total} events`);
  }

  /** What became of it: a badge changed. Changes in a row share a line. */
  effect(user: User, before: number, after: number): void {
    const chip = h(
      "span",
      { class: after > before ? "effect is-up" : "effect" },
      `${user.name} ${before} → ${after}`,
    );
    chip.style.setProperty("--user", user.color);
    if (this.#effects === undefined || this.#list.firstElementChild !== this.#effects) {
      this.#effects = h("li", { class: "effects" });
      this.#put(this.#effects);
    }
    this.#effects.append(chip);
  }

  /** Something that happened beside the log. */
  note(title: string, text: string): void {
    this.#put(
      h(
        "li",
        { class: "event", "data-kind": "note" },
        h("span", { class: "event-type" }, title),
        h("span", { class: "event-summary" }, text),
      ),
    );
  }

  #put(row: HTMLElement): void {
    this.#list.prepend(row);
    animate(row, [{ opacity: 0, transform: "translateY(-8px)" }, { transform: "none" }], 300);
    while (this.#list.childElementCount > KEPT) this.#list.lastElementChild?.remove();
  }
}

function draw({ position, type, source, id, summary, time }: LoggedEvent): HTMLElement {
  return h(
    "li",
    {
      class: "event",
      "data-kind": type,
      title: `${clockToTheSecond(new Date(time))}, ${source} ${id}`,
    },
    h("span", { class: "event-type" }, type),
    h("span", { class: "event-position" }, position),
    h("span", { class: "event-summary" }, summary),
  );
}
