import { animate, clockToTheSecond, h, setText } from "./dom.js";
import type { LoggedEvent } from "./server.js";

// Older events leave the page.
const KEPT = 150;

/** The log beside the phones: what happened, newest first. */
export class EventLog {
  readonly #list: HTMLElement;
  readonly #count: HTMLElement;
  readonly #seen = new Set<string>();
  #total = 0;

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

    const row = draw(event);
    this.#list.prepend(row);
    animate(row, [{ opacity: 0, transform: "translateY(-8px)" }, { transform: "none" }], 300);
    while (this.#list.childElementCount > KEPT) this.#list.lastElementChild?.remove();
    setText(this.#count, `${this.#total} events`);
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
