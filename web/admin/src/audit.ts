import { h } from "../../page/dom.js";
import { AwayNotice, missingOf } from "./away.js";
import { when } from "./format.js";
import { KeyedList } from "./list.js";
import { table } from "./overview.js";
import { hashOf } from "./place.js";
import type { Action, Server } from "./server.js";
import type { Page, View } from "./view.js";

/** The audit trail of operator actions. */
export class Audit implements View {
  readonly name = "audit";
  readonly title = "Audit trail";
  readonly element: HTMLElement;
  readonly #rows: KeyedList<Action>;
  readonly #more = h("button", { class: "button", type: "button", hidden: true }, "Show older");
  readonly #away = new AwayNotice();
  #actions: readonly Action[] = [];

  constructor(page: Page) {
    const body = h("tbody");
    this.#rows = new KeyedList(
      body,
      ({ id }) => String(id),
      row,
      h("tr", {}, h("td", { class: "empty", colspan: "5" }, "No actions yet.")),
    );
    this.#more.addEventListener("click", async () => {
      const older = await page.server.audit(this.#actions.at(-1)?.id).catch(() => undefined);
      if (older === undefined) return;
      this.#show([...this.#actions, ...older.items]);
      this.#more.hidden = older.items.length === 0;
    });
    this.element = h(
      "div",
      { class: "view" },
      this.#away.element,
      table("Audit trail", ["When", "Who", "Action", "Arguments", "Result"], body),
      this.#more,
    );
  }

  async refresh(server: Server): Promise<void> {
    const { items: newest, away } = await server.audit(undefined);
    this.#away.show(missingOf(away, "actions are missing here."));
    const oldest = Date.parse(newest.at(-1)?.at ?? "");
    const ids = new Set(newest.map(({ id }) => id));
    const first = this.#actions.length === 0;
    this.#show([
      ...newest,
      ...this.#actions.filter(({ id, at }) => Date.parse(at) <= oldest && !ids.has(id)),
    ]);
    if (first) this.#more.hidden = newest.length === 0;
  }

  #show(actions: readonly Action[]): void {
    this.#actions = actions;
    this.#rows.update(actions);
  }
}

/** Most characters of an object shown before it is unfolded. */
const shown = 60;

function row(a: Action): HTMLElement {
  return h(
    "tr",
    { class: a.error === undefined ? undefined : "is-bad" },
    h("td", { class: "nowrap" }, h("time", { datetime: a.at }, when(a.at))),
    h(
      "td",
      { class: "nowrap" },
      h("strong", {}, a.who),
      h(
        "span",
        { class: "soft" },
        `${a.via === "api" ? " · key" : " · shell"}${a.shard === undefined ? "" : ` · shard ${a.shard}`}`,
      ),
    ),
    h("td", { class: "mono" }, a.action),
    h("td", { class: "wide" }, folded(a.arguments, `${told(a.arguments).slice(0, shown)}…`)),
    h("td", { class: "wide" }, outcome(a)),
  );
}

/** Formats the fields of an object for people. */
function told(fields: Readonly<Record<string, unknown>>): string {
  return Object.entries(fields)
    .map(([name, value]) => `${name} ${typeof value === "string" ? value : JSON.stringify(value)}`)
    .join(", ");
}

function outcome(a: Action): Node {
  if (a.error !== undefined) return document.createTextNode(a.error);
  if (a.ended_at === undefined)
    return document.createTextNode("unknown: in progress, or its process has exited");
  if (a.result === undefined) return document.createTextNode("done");
  const { job } = a.result as { job?: number };
  if (job !== undefined)
    return h("a", { href: hashOf("jobs", { job: String(job) }) }, `job ${job}`);
  return folded(a.result as Record<string, unknown>, "done");
}

/** The fields of an object, folded behind a summary if they are long. */
function folded(fields: Readonly<Record<string, unknown>>, summary: string): HTMLElement {
  if (JSON.stringify(fields).length <= shown) return h("span", { class: "mono" }, told(fields));
  return h(
    "details",
    {},
    h("summary", {}, summary),
    h("pre", { class: "mono", tabindex: "0" }, JSON.stringify(fields, null, 2)),
  );
}
