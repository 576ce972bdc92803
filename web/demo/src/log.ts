import { animate, clockToTheSecond, h, setText } from "../../page/dom.js";
import { Changes } from "./changes.js";
import type { Cast, DemoServer, LoggedEvent } from "./server.js";

// Most events on the page.
const KEPT = 150;

/** The event log beside the phones, newest first. Each event shows what it changed. */
export class EventLog {
  readonly #list: HTMLElement;
  readonly #count: HTMLElement;
  readonly #server: DemoServer;
  readonly #seen = new Set<string>();
  #total = 0;
  #cast: Cast = { users: [], conversations: [] };
  #onChanged: (users: readonly string[]) => void = () => {};
  #open: { button: HTMLButtonElement; changes: Changes } | undefined;

  constructor(list: HTMLElement, count: HTMLElement, server: DemoServer) {
    this.#list = list;
    // A scrolling element must be reachable with the keyboard.
    list.tabIndex = 0;
    this.#count = count;
    this.#server = server;
  }

  /** Sets the users, and the listener for the users that the open event changed. */
  begin(cast: Cast, onChanged: (users: readonly string[]) => void): void {
    this.#cast = cast;
    this.#onChanged = onChanged;
  }

  /** How many events were added. */
  get total(): number {
    return this.#total;
  }

  /** Adds an event, unless it is known, as after a reconnect. */
  add(event: LoggedEvent): void {
    // An event has a row in the log of each partition that it concerns.
    const name = `${event.position} ${event.source} ${event.id}`;
    if (this.#seen.has(name)) return;
    this.#seen.add(name);
    this.#total++;

    this.#put(this.#draw(event));
    setText(this.#count, `${this.#total} events`);
  }

  /** Adds a note that is not an event of the log. */
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
    // Keep the open event in place.
    const { scrollTop, scrollHeight } = this.#list;
    this.#list.prepend(row);
    if (this.#open !== undefined && scrollTop > 0) {
      this.#list.scrollTop = scrollTop + this.#list.scrollHeight - scrollHeight;
    }
    animate(row, [{ opacity: 0, transform: "translateY(-8px)" }, { transform: "none" }], 300);
    while (this.#list.childElementCount > KEPT) {
      const oldest = this.#list.lastElementChild;
      if (this.#open && oldest?.contains(this.#open.button)) this.#close();
      oldest?.remove();
    }
  }

  #draw(event: LoggedEvent): HTMLElement {
    const { position, type, source, id, summary, time } = event;
    const button = h(
      "button",
      { class: "event-button", type: "button", "aria-expanded": "false" },
      h("span", { class: "event-type" }, type || "not decoded"),
      h("span", { class: "event-position" }, position),
      h("span", { class: "event-summary" }, summary),
    );
    const row = h(
      "li",
      {
        class: "event",
        "data-kind": type,
        title: `${clockToTheSecond(new Date(time))}, ${source} ${id}`,
      },
      button,
    );
    button.addEventListener("click", () => {
      const wasOpen = this.#open?.button === button;
      this.#close();
      if (wasOpen) return;
      button.setAttribute("aria-expanded", "true");
      const changes = new Changes(event, this.#cast, this.#server, this.#onChanged);
      this.#open = { button, changes };
      row.append(changes.element);
    });
    return row;
  }

  #close(): void {
    this.#open?.button.setAttribute("aria-expanded", "false");
    this.#open?.changes.close();
    this.#open = undefined;
    this.#onChanged([]);
  }
}
