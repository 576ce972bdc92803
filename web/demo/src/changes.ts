import { h } from "../../page/dom.js";
import type { Cast, Change, DemoServer, LoggedEvent } from "./server.js";

const RETRY_MS = 400;

/** What an event changed, shown below it in the log. */
export class Changes {
  readonly element = h("div", { class: "changes", "aria-live": "polite" });
  readonly #cast: Cast;
  readonly #server: DemoServer;
  readonly #onKnown: (users: readonly string[]) => void;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #closed = false;

  /** `onKnown` receives the users with changed badges. */
  constructor(
    event: LoggedEvent,
    cast: Cast,
    server: DemoServer,
    onKnown: (users: readonly string[]) => void,
  ) {
    this.#cast = cast;
    this.#server = server;
    this.#onKnown = onKnown;
    const users = event.users.filter((id) => cast.users.some(({ user_id }) => user_id === id));
    if (users.length > 0) {
      this.element.append(h("p", { class: "changes-note" }, "Searching the log…"));
      void this.#ask(event, users);
      return;
    }
    const more = event.others ? ` and ${event.others} others` : "";
    const others = event.users.join(", ") || "no user";
    this.element.append(
      h("p", { class: "changes-note" }, `Concerns ${others}${more}: no phone here.`),
    );
  }

  close(): void {
    this.#closed = true;
    clearTimeout(this.#timer);
    this.element.remove();
  }

  async #ask(event: LoggedEvent, users: readonly string[]): Promise<void> {
    const changes = await this.#server.changes(event, users).catch(() => undefined);
    if (this.#closed) return;
    if (changes === undefined || changes.length < users.length) {
      // The event may not be folded yet, or the server may be unreachable.
      this.#timer = setTimeout(() => void this.#ask(event, users), RETRY_MS);
      return;
    }
    this.element.replaceChildren(...changes.map((change) => this.#draw(change)));
    this.#onKnown(
      changes.filter(({ before, after }) => before !== after).map(({ user_id }) => user_id),
    );
  }

  #draw(change: Change): HTMLElement {
    const user = this.#cast.users.find(({ user_id }) => user_id === change.user_id);
    const { before, after } = change;
    const total =
      before === after
        ? h("span", { class: "change-total is-same" }, `stays ${after}`)
        : h(
            "span",
            { class: "change-total" },
            `${before} `,
            h("span", { "aria-label": "to" }, "→"),
            " ",
            h("strong", {}, String(after)),
          );
    const row = h(
      "div",
      { class: "change" },
      h("span", { class: "change-name" }, user?.name ?? change.user_id),
      total,
      ...reasons(change, this.#cast).map((text) => h("span", { class: "change-why" }, text)),
    );
    row.style.setProperty("--user", user?.color ?? "var(--quiet)");
    return row;
  }
}

/** Describes the change of a total, or why there is none. */
export function reasons({ conversations, detail }: Change, cast: Cast): string[] {
  const texts = conversations.map((c) => {
    const known = cast.conversations.find((other) => other.conversation_id === c.conversation_id);
    const name = known?.name ?? c.conversation_id;
    const unread =
      c.unread_before === c.unread_after
        ? `${c.unread_after} unread`
        : `${c.unread_before} → ${c.unread_after} unread`;
    const level =
      c.level === "none" ? ", muted" : c.level === "mentions" ? ", only mentions count" : "";
    return `${name}: ${unread}${level}`;
  });
  if (texts.length > 0) return texts;
  return [detail ?? "nothing that counts changed"];
}
