import {
  type Badge,
  type Conversation,
  covers,
  formatCount,
  levelOf,
  type Part,
  shareOf,
} from "@badged/sdk";
import { h, plural, setText, spoken } from "../../page/dom.js";
import { icon } from "./icons.js";
import type { Kind, Message } from "./server.js";

/** The category of notifications: its number is of those that were not seen. */
export const BELL = "bell";

/** A conversation from the view of one user. */
export interface Topic {
  readonly id: string;
  readonly title: string;
  readonly kind: Kind;
  readonly category: string;
  /** Shown with its first message. */
  readonly late: boolean;
  /** The color of the other user of a direct conversation. */
  readonly color: string | undefined;
}

/** The content of a row. */
export interface RowState {
  readonly conversation: Conversation | undefined;
  /** The levels of categories. */
  readonly levels: Badge["levels"];
  readonly last: Message | undefined;
  /** The last message in one line. */
  readonly preview: string;
}

/** Counts a category, or everything: what the badge counts unless told otherwise. */
export type CountOf = (category: string | undefined, count?: Part["count"]) => number;

/**
 * The list of a user's conversations, of all workspaces or of one with its channels. Rows keep
 * their places, so that changes are easy to follow.
 */
export class ConversationList {
  readonly element: HTMLElement;
  readonly #rows = new Map<string, Row>();
  readonly #channels: Channel[] = [];
  readonly #topics: readonly Topic[];
  readonly #tabs: Tabs;
  #chosen: string | undefined;

  /** `onChoose` is called with a workspace, with the bell, or with undefined for all. */
  constructor(
    topics: readonly Topic[],
    owner: string,
    onOpen: (topic: Topic) => void,
    onChoose: (category: string | undefined) => void,
  ) {
    this.#topics = topics;
    const list = h("ul", { class: "rows", "aria-label": `Conversations of ${owner}` });
    for (const topic of topics) {
      if (this.#channels.at(-1)?.category !== topic.category) {
        const channel = new Channel(topic.category);
        this.#channels.push(channel);
        list.append(channel.element);
      }
      const row = new Row(topic, () => onOpen(topic));
      this.#rows.set(topic.id, row);
      list.append(row.element);
    }
    const tops = topics.map(({ category }) => category.replace(/\/.*/, ""));
    this.#tabs = new Tabs([...new Set(tops)], (category) => {
      this.#chosen = category;
      this.#filter();
      onChoose(category);
    });
    this.element = h("div", { class: "list" }, list, this.#tabs.element);
  }

  update(count: CountOf, state: (topic: Topic) => RowState): void {
    for (const topic of this.#topics) this.#rows.get(topic.id)?.update(state(topic));
    for (const channel of this.#channels) channel.update(count);
    this.#filter();
    this.#tabs.update(count);
  }

  /** Focuses a row, for example after its conversation was closed. */
  focus(topic: Topic): void {
    this.#rows.get(topic.id)?.button.focus();
  }

  #filter(): void {
    const chosen = this.#chosen;
    for (const { category, element } of this.#channels) {
      element.hidden = chosen === undefined || !covers(chosen, category);
    }
    for (const { id, category, late } of this.#topics) {
      const row = this.#rows.get(id);
      if (row === undefined) continue;
      const shown = chosen === undefined || covers(chosen, category);
      row.element.hidden = !shown || (late && !row.hasMessages);
    }
  }
}

/** The red number of a category, with the grey one of what is muted. */
class Pair {
  readonly element = h("span", { class: "pair" });
  readonly #category: string | undefined;
  #drawn = "";

  constructor(category: string | undefined) {
    this.#category = category;
  }

  update(count: CountOf): void {
    const red = count(this.#category, this.#category === BELL ? "unseen" : undefined);
    const grey = count(this.#category, "muted");
    if (this.#drawn === `${red},${grey}`) return;
    this.#drawn = `${red},${grey}`;
    this.element.replaceChildren(
      h("span", { class: "pair-counted" }, formatCount(red)),
      h("span", { class: "pair-muted", "aria-hidden": "true" }, formatCount(grey)),
    );
    if (grey > 0) this.element.append(spoken(`, ${grey} muted`));
  }
}

/** The heading of a channel: its number counts its threads too. */
class Channel {
  readonly element: HTMLLIElement;
  readonly #pair: Pair;
  readonly category: string;

  constructor(category: string) {
    this.category = category;
    this.#pair = new Pair(category);
    const name = category.slice(category.indexOf("/") + 1);
    this.element = h("li", { class: "channel", hidden: true }, `# ${name}`, this.#pair.element);
  }

  update(count: CountOf): void {
    this.#pair.update(count);
  }
}

class Row {
  readonly element: HTMLLIElement;
  readonly button: HTMLButtonElement;
  hasMessages = false;
  readonly #preview = h("span", { class: "row-preview" });
  readonly #time = h("span", { class: "row-time" });
  readonly #marks = h("span", { class: "row-marks" });
  readonly #level = h("span", { class: "row-level" });
  #drawn = "";

  constructor(topic: Topic, onOpen: () => void) {
    const title = h(
      "span",
      { class: "row-title" },
      h("span", { class: "row-name" }, topic.title),
      this.#level,
    );
    this.button = h(
      "button",
      { class: "row", type: "button" },
      avatar(topic),
      h(
        "span",
        { class: "row-lines" },
        h("span", { class: "row-line" }, title, this.#time),
        h("span", { class: "row-line" }, this.#preview, this.#marks),
      ),
    );
    this.button.addEventListener("click", onOpen);
    this.element = h("li", topic.kind === "thread" ? { class: "thread-row" } : {}, this.button);
  }

  update({ conversation, levels, last, preview }: RowState): void {
    this.hasMessages = conversation !== undefined;
    setText(this.#preview, preview);
    setText(this.#time, last ? ago(new Date(last.time)) : "");

    const { unread = 0, mentions = 0, markedUnread = false } = conversation ?? {};
    const level = (conversation && levelOf(conversation, levels)) ?? "all";
    const marks = [unread, mentions, level, markedUnread].join();
    if (marks === this.#drawn) return;
    this.#drawn = marks;

    this.button.classList.toggle("is-unread", unread > 0 || markedUnread);
    this.#level.replaceChildren(...levelMark(level));
    this.#marks.replaceChildren();
    if (mentions > 0) {
      this.#marks.append(
        h(
          "span",
          { class: level === "none" ? "pill is-quiet" : "pill", "aria-hidden": "true" },
          "@",
        ),
        spoken(`, ${plural(mentions, "mention")}`),
      );
    }
    if (unread > 0 || markedUnread) {
      // Only counted numbers are red, so that the red numbers add up to the badge.
      const share = conversation && shareOf(conversation, levels);
      const counts = (share?.total ?? 0) >= Math.max(unread, 1);
      this.#marks.append(
        h(
          "span",
          { class: counts ? "pill" : "pill is-quiet", "aria-hidden": "true" },
          formatCount(unread) || "\u00a0",
        ),
        spoken(unread > 0 ? `, ${unread} unread` : ", marked unread"),
      );
    }
  }
}

function levelMark(level: string): Node[] {
  if (level === "none") return [icon("muted"), spoken(", muted")];
  if (level === "mentions")
    return [h("span", { "aria-hidden": "true" }, "@ only"), spoken(", only mentions count")];
  return [];
}

/** The picture of a conversation. */
export function avatar({ kind, title, color }: Topic): HTMLElement {
  const picture = h("span", { class: `avatar is-${kind}`, "aria-hidden": "true" });
  if (kind === "direct") picture.append(title.slice(0, 1));
  else picture.append(icon(kind));
  if (color !== undefined) picture.style.setProperty("--user", color);
  return picture;
}

/** The badges of the workspaces and of the bell, which also filter the list. */
class Tabs {
  readonly element: HTMLElement;
  readonly #pairs: Pair[] = [];

  constructor(categories: readonly string[], onChoose: (category: string | undefined) => void) {
    const buttons: HTMLButtonElement[] = [];
    this.element = h("div", { class: "tabs", role: "group", "aria-label": "Workspaces" });
    for (const category of [undefined, ...categories]) {
      const name = category ?? "all";
      const pair = new Pair(category);
      const button = h(
        "button",
        { class: "tab", type: "button", "aria-pressed": String(category === undefined) },
        ...(category === BELL ? [icon("bell"), spoken("Bell")] : [capital(name)]),
        pair.element,
      );
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        onChoose(category);
      });
      buttons.push(button);
      this.#pairs.push(pair);
    }
    this.element.append(...buttons);
  }

  update(count: CountOf): void {
    for (const pair of this.#pairs) pair.update(count);
  }
}

function capital(name: string): string {
  return name.slice(0, 1).toUpperCase() + name.slice(1);
}

/** The age of a message, short enough for a list. */
function ago(then: Date): string {
  const seconds = Math.max(0, (Date.now() - then.getTime()) / 1000);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
