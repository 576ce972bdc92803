import { formatCount, type Status } from "@badged/sdk";
import { animate, clock, h, plural, setText, spoken } from "../../page/dom.js";
import { unread } from "./count.js";
import { icon } from "./icons.js";
import type { User } from "./server.js";

const STATUS: Record<Status["state"], string> = {
  stopped: "Offline",
  connecting: "Connecting…",
  online: "Live",
  waiting: "Reconnecting…",
  refused: "Refused",
};

/** The upper part of a phone: the status and the icon with the badge. */
export class Home {
  readonly element: HTMLElement;
  readonly #time = h("span", { class: "bar-time" });
  readonly #status = h("span");
  readonly #badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
  readonly #icon = h("div", { class: "app-icon" }, icon("chat"), this.#badge);
  readonly #said = spoken();
  readonly #parts = h("p", { class: "parts", "aria-hidden": "true" });
  readonly #mentions = h("p", { class: "mentions" });
  readonly #behind = h("p", { class: "behind", hidden: true });
  readonly #open = h(
    "button",
    { class: "open-app", type: "button" },
    h("strong", {}, "App closed"),
    h("span", {}, "Only a push reaches the icon. Tap to open."),
  );
  readonly #closed = h("div", { class: "closed", hidden: true }, this.#open);
  /** The user taps the closed app. */
  onOpen = () => {};
  #shown: number | undefined;

  constructor(user: User) {
    this.element = h(
      "header",
      { class: "home" },
      h(
        "div",
        { class: "bar" },
        this.#time,
        h(
          "span",
          { class: "link" },
          h("span", { class: "link-dot", "aria-hidden": "true" }),
          this.#status,
        ),
      ),
      h(
        "div",
        { class: "home-row" },
        this.#icon,
        h(
          "div",
          { class: "who" },
          h("h2", {}, user.name),
          this.#said,
          this.#parts,
          this.#mentions,
          this.#behind,
        ),
      ),
      this.#closed,
    );
    this.#open.addEventListener("click", () => this.onOpen());
  }

  setClosed(closed: boolean): void {
    this.#closed.hidden = !closed;
  }

  /** Shows the icon of a closed app, whose number was pushed. */
  showClosed(count: number, pushes: number): void {
    setText(this.#time, clock(new Date()));
    setText(this.#status, "App closed");
    this.showBehind(undefined);
    const came = pushes === 1 ? "1 push" : `${pushes} pushes`;
    this.showBadge(count, unread(count, "messages"), "", true, 0);
    setText(this.#parts, came);
  }

  /** `waiting` is the number of pending commands. */
  update(status: Status, waiting: number): void {
    setText(this.#time, clock(new Date()));
    const word = STATUS[status.state];
    setText(this.#status, waiting > 0 ? `${word} · ${waiting} waiting` : word);
    const why = status.state === "waiting" || status.state === "refused" ? status.reason : "";
    if (this.element.title !== why) this.element.title = why;
  }

  /** `said` is the count in words, `what` what it is made of, and `right` whether that fits. */
  showBadge(count: number, said: string, what: string, right: boolean, mentions: number): void {
    setText(this.#said, said);
    setText(this.#parts, count === 0 ? "All caught up" : what);
    this.#parts.classList.toggle("is-wrong", !right);
    setText(this.#mentions, mentions > 0 ? plural(mentions, "mention") : "");
    if (count === this.#shown) return;

    const before = this.#shown;
    this.#shown = count;
    this.#badge.hidden = count === 0;
    setText(this.#badge, formatCount(count));
    animate(
      this.#badge,
      [{ transform: "scale(0.6)" }, { transform: "scale(1.25)" }, { transform: "none" }],
      380,
    );
    if (before !== undefined) this.#float(count - before);
  }

  /** Shows that the numbers are out of date, with the correct total; undefined removes it. */
  showBehind(total: number | undefined): void {
    this.#behind.hidden = total === undefined;
    this.#parts.hidden = this.#mentions.hidden = total !== undefined;
    setText(this.#behind, total === undefined ? "" : `Stale: now ${total}`);
  }

  /** Animates a ring around the badge. */
  showCaughtUp(): void {
    const ring = h("span", { class: "caught-up", "aria-hidden": "true" });
    this.#icon.append(ring);
    const grow = animate(
      ring,
      [
        { transform: "scale(0.8)", opacity: 1 },
        { transform: "scale(1.5)", opacity: 0 },
      ],
      1400,
    );
    if (grow === undefined) ring.remove();
    else grow.onfinish = () => ring.remove();
  }

  /** Animates the change of the total above the badge. */
  #float(difference: number): void {
    const sign = difference > 0 ? "+" : "−";
    const delta = h(
      "span",
      { class: "delta", "aria-hidden": "true" },
      `${sign}${Math.abs(difference)}`,
    );
    this.#icon.append(delta);
    const rise = animate(
      delta,
      [
        { transform: "translateY(0)", opacity: 0 },
        { opacity: 1, offset: 0.2 },
        { transform: "translateY(-14px)", opacity: 0 },
      ],
      1100,
    );
    if (rise === undefined) delta.remove();
    else rise.onfinish = () => delta.remove();
  }
}
