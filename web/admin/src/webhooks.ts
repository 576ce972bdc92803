import { h } from "../../page/dom.js";
import { AwayNotice, missingOf } from "./away.js";
import { count, counted, when } from "./format.js";
import { KeyedList } from "./list.js";
import type { Server, Webhook, WebhookState } from "./server.js";
import type { Page, View } from "./view.js";

/** The most due events that the server counts. */
const COUNTED = 10_000;

/** The endpoints that are told of changes. */
export class Webhooks implements View {
  readonly name = "webhooks";
  readonly title = "Webhooks";
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #list: KeyedList<Webhook>;
  readonly #away = new AwayNotice();
  readonly #onFailing: (n: number) => void;

  constructor(page: Page, onFailing: (n: number) => void) {
    this.#page = page;
    this.#onFailing = onFailing;
    const cards = h("ul", { class: "cards", "aria-label": "Webhooks" });
    this.#list = new KeyedList(
      cards,
      ({ name }) => name,
      (webhook) => this.#card(webhook),
      h(
        "li",
        { class: "empty panel" },
        "There are no webhooks. PUT /admin/v1/webhooks/NAME makes one, and --webhooks-config declares them in a file.",
      ),
    );
    this.element = h(
      "div",
      { class: "view" },
      h(
        "p",
        { class: "lead" },
        "Other backends that are called when something changes. A paused webhook loses nothing: when it is resumed, it is told the newest state of all that changed.",
      ),
      this.#away.element,
      cards,
    );
  }

  async refresh(server: Server): Promise<void> {
    const { items: webhooks, away } = await server.webhooks();
    this.#away.show(missingOf(away, "calls are not in these numbers."));
    this.#list.update(webhooks);
    this.#onFailing(webhooks.filter((w) => w.step > 0).length);
  }

  #card(w: Webhook): HTMLElement {
    const buttons = actionsOf(w).map(({ label, spoken, state, done }) => {
      const button = h("button", { class: "button", type: "button", "aria-label": spoken }, label);
      button.addEventListener("click", () =>
        this.#page.act(() => this.#page.server.setWebhookState(w.name, state), done),
      );
      return button;
    });
    const card = h(
      "li",
      { class: "card panel" },
      h(
        "div",
        { class: "card-head" },
        h("span", { class: "state", "data-state": lookOf(w) }, wordOf(w)),
        h("h2", {}, w.name),
        h("span", { class: "mono soft reason" }, shownURL(w.url)),
        h("div", { class: "card-buttons" }, ...buttons),
      ),
      h("p", { class: "soft" }, toldOf(w)),
      h("p", {}, dueOf(w)),
    );
    if (w.last_error !== undefined) card.append(h("p", { class: "bad reason" }, failureOf(w)));
    return card;
  }
}

interface WebhookAction {
  readonly label: string;
  /** What screen readers say, since cards have the same labels. */
  readonly spoken: string;
  readonly state: WebhookState;
  readonly done: string;
}

/** What can be done about a webhook. */
export function actionsOf(w: Webhook): WebhookAction[] {
  const active = (label: string, spoken: string, done: string): WebhookAction => ({
    label,
    spoken,
    state: "active",
    done,
  });
  if (w.state === "paused") return [active("Resume", `Resume ${w.name}`, `${w.name} is resumed`)];
  if (w.state === "disabled") return [active("Enable", `Enable ${w.name}`, `${w.name} is enabled`)];
  const pause: WebhookAction = {
    label: "Pause",
    spoken: `Pause ${w.name}`,
    state: "paused",
    done: `${w.name} is paused`,
  };
  if (w.step === 0 && w.last_error === undefined) return [pause];
  return [active("Retry now", `Retry now: ${w.name}`, `${w.name} is tried again`), pause];
}

/** The state in a word. */
export function wordOf(w: Webhook): string {
  return w.state === "active" && w.step > 0 ? "failing" : w.state;
}

function lookOf(w: Webhook): string {
  const word = wordOf(w);
  if (word === "active") return "done";
  return word === "failing" ? "failed" : "interrupted";
}

/** A URL without its query, which may hold a token. */
export function shownURL(url: string): string {
  return url.replace(/\?.*$/s, "?…");
}

/** What a webhook is told, and when it was last. */
export function toldOf(w: Webhook): string {
  return [
    w.events.join(", "),
    w.categories === undefined ? "" : `of ${w.categories.join(", ")}`,
    w.batch > 1 ? `up to ${w.batch} in a call` : "",
    w.rate === undefined ? "" : `at most ${counted(w.rate, "call")} a minute`,
    w.last_success_at === undefined
      ? "no call has succeeded yet"
      : `last success ${when(w.last_success_at)}`,
  ]
    .filter((part) => part)
    .join(" · ");
}

/** How many events are due. */
export function dueOf({ due_events: n, state }: Webhook): string {
  if (n === 0) return "Nothing is due";
  const due = n >= COUNTED ? `${count(n)} events or more` : counted(n, "event");
  return state === "active" ? `${due} due` : `${due} wait`;
}

/** Why the last call failed, since when calls do, and what comes next. */
export function failureOf(w: Webhook): string {
  const at = w.last_failure_at === undefined ? "" : ` at ${when(w.last_failure_at)}`;
  const since =
    w.failing_since === undefined
      ? ""
      : `; failing since ${when(w.failing_since)}, step ${w.step} of the ladder`;
  const next =
    w.state !== "active" || w.next_call_at === undefined
      ? ""
      : `; next call ${when(w.next_call_at)}`;
  return `${w.last_error ?? ""}${at}${since}${next}`;
}
