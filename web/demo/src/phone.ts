import { Badged, formatCount, type Seq, type Status } from "@badged/sdk";
import { animate, clock, h, oncePerFrame, plural, setText, spoken } from "../../page/dom.js";
import type { Chat } from "./chat.js";
import { icon } from "./icons.js";
import { ConversationList, type RowState, type Topic } from "./list.js";
import { sum } from "./parts.js";
import { Reader } from "./reader.js";
import type { Cast, DemoServer, Message, User } from "./server.js";
import { Thread } from "./thread.js";

// Screen readers hear of a phone's badge at most this often, unless its user
// did something.
const ANNOUNCE_MS = 10_000;
const HURRY_MS = 1_000;

// With thin spaces, since a phone is narrow.
const THIN_PLUS = "\u2009+\u2009";

const STATUS: Record<Status["state"], string> = {
  stopped: "Offline",
  connecting: "Connecting…",
  online: "Live",
  waiting: "Reconnecting…",
  refused: "Refused",
};

export interface PhoneOptions {
  readonly user: User;
  readonly cast: Cast;
  readonly chat: Chat;
  readonly server: DemoServer;
  /** The badge or the connection changed. */
  readonly onChange: () => void;
  /** The total changed from what the phone showed before. */
  readonly onTotal: (user: User, before: number, after: number) => void;
}

/** The phone of one user, with a badge client of its own. */
export class Phone {
  readonly element: HTMLElement;
  readonly client: Badged;
  readonly user: User;
  readonly #options: PhoneOptions;
  readonly #users: ReadonlyMap<string, User>;
  readonly #topics: readonly Topic[];
  readonly #reader: Reader;
  readonly #list: ConversationList;
  readonly #screen: HTMLElement;
  readonly #home: Home;
  readonly #switch: HTMLInputElement;
  readonly #announcer = new Announcer();
  #thread: Thread | undefined;
  #total: number | undefined;
  /** What the phone last saw of the chat, while it is offline. */
  #frozen: ReadonlyMap<string, readonly Message[]> | undefined;

  constructor(options: PhoneOptions) {
    this.#options = options;
    const { user, cast, server } = options;
    this.user = user;
    this.#users = new Map(cast.users.map((other) => [other.user_id, other]));
    this.#topics = topicsOf(user, cast);
    this.client = new Badged({
      url: location.href,
      user: user.user_id,
      token: () => server.token(user.user_id),
    });
    this.#reader = new Reader(this.client);

    this.#list = new ConversationList(this.#topics, user.name, (topic) => this.#open(topic));
    this.#screen = h("div", { class: "app" }, this.#list.element);
    this.#home = new Home(user);
    this.#switch = h("input", { type: "checkbox", role: "switch", checked: true });
    this.#switch.addEventListener("change", () => this.#setOnline(this.#switch.checked));
    const readAll = h(
      "button",
      { class: "quiet-button", type: "button" },
      "Read all",
      spoken(` of ${user.name}`),
    );
    readAll.addEventListener("click", () => this.#readAll());
    this.element = h(
      "article",
      { class: "phone", id: `phone-${user.user_id}`, "aria-label": `${user.name}'s phone` },
      h("div", { class: "device" }, this.#home.element, this.#screen),
      h(
        "div",
        { class: "controls" },
        h(
          "label",
          { class: "switch" },
          this.#switch,
          h("span", { class: "switch-track", "aria-hidden": "true" }),
          h("span", {}, "Online"),
          spoken(`, ${user.name}'s phone`),
        ),
        readAll,
      ),
      this.#announcer.element,
    );
    this.element.style.setProperty("--user", user.color);

    this.client.on("total", ({ total }) => {
      if (this.#total !== undefined && total !== this.#total) {
        options.onTotal(user, this.#total, total);
      }
      this.#total = total;
      this.refresh();
    });
    this.client.on("conversation", () => {
      this.#reader.check();
      this.refresh();
    });
    this.client.on("status", ({ state }) => {
      if (state === "refused") this.#switch.checked = false;
      if (state === "online") this.#reader.check();
      this.refresh();
    });
    this.client.start();
  }

  /** Draws what changed, before the next frame is painted. */
  readonly refresh = oncePerFrame(() => {
    this.#updateThread();
    // Before the status is drawn: it may add to what waits.
    this.#showToReader();
    const { badge, conversations, status, more, waiting } = this.client;
    this.element.dataset.status = status.state;
    this.#home.update(status, status.state === "online" ? 0 : waiting);
    if (badge !== undefined) {
      this.#home.showBadge(badge.total, badge.mentions, sum(badge, conversations.values()), more);
      this.#announcer.say(
        `${this.user.name}: ${badge.total} unread, ${plural(badge.mentions, "mention")}`,
      );
    }
    this.#list.update(badge?.total ?? 0, badge?.categories ?? {}, (topic) => this.#row(topic));
    this.#options.onChange();
  });

  #updateThread(): void {
    if (this.#thread === undefined) return;
    const { id } = this.#thread.topic;
    const { conversations, status } = this.client;
    const level = conversations.get(id)?.level ?? "all";
    this.#thread.update(this.#messages(id), level, status.state === "online");
  }

  #messages(conversationId: string): readonly Message[] {
    if (this.#frozen !== undefined) return this.#frozen.get(conversationId) ?? [];
    return this.#options.chat.messages(conversationId);
  }

  #row(topic: Topic): RowState {
    const conversation = this.client.conversations.get(topic.id);
    const last = this.#messages(topic.id).at(-1);
    // Older messages than the page was sent may be counted.
    const none = conversation === undefined ? "No messages yet" : "";
    return { conversation, last, preview: last ? this.#preview(topic, last) : none };
  }

  #preview({ kind }: Topic, { sender_id, text, recalled }: Message): string {
    if (recalled) return "Message recalled";
    if (sender_id === this.user.user_id) return `You: ${text}`;
    if (kind !== "group") return text;
    return `${this.#users.get(sender_id)?.name ?? sender_id}: ${text}`;
  }

  #setOnline(online: boolean): void {
    this.#announcer.hurry();
    if (online) {
      this.#frozen = undefined;
      this.client.start();
    } else {
      this.#frozen = new Map(this.#topics.map(({ id }) => [id, this.#options.chat.messages(id)]));
      this.client.stop();
    }
    this.refresh();
  }

  #readAll(): void {
    this.#announcer.hurry();
    void this.client.readAll();
    this.refresh();
  }

  #open(topic: Topic): void {
    this.#announcer.hurry();
    this.#thread = new Thread({
      topic,
      owner: this.user,
      users: this.#users,
      firstUnreadSeq: this.client.conversations.get(topic.id)?.firstUnreadSeq ?? 0,
      onClose: () => this.#close(topic),
      onSend: (text) => this.#options.server.send(topic.id, this.user.user_id, text),
      onRecall: (message) => void this.#options.server.recall(message).catch(() => {}),
      onLevel: (level) =>
        void this.#options.server.setLevel(topic.id, this.user.user_id, level).catch(() => {}),
      onMarkUnread: () => this.#markUnread(topic),
      onScroll: () => this.#showToReader(),
    });
    this.#updateThread();
    this.#list.element.inert = true;
    this.#screen.append(this.#thread.element);
    this.#thread.opened();
    animate(
      this.#thread.element,
      [{ transform: "translateX(30%)", opacity: 0 }, { transform: "none" }],
      240,
    );
    this.refresh();
  }

  #close(topic: Topic): void {
    this.#reader.show(undefined);
    this.#thread?.element.remove();
    this.#thread = undefined;
    this.#list.element.inert = false;
    this.#list.focus(topic);
  }

  /** Leaves the conversation, too: one that is open is read. */
  #markUnread(topic: Topic): void {
    this.#announcer.hurry();
    this.#close(topic);
    // Refused where the conversation never had a message: then nothing changes.
    this.client.markUnread(topic.id).catch(() => {});
    this.refresh();
  }

  #showToReader(): void {
    if (this.#thread === undefined) return;
    const { id } = this.#thread.topic;
    let seq: Seq | undefined = this.#thread.newestShown;
    if (seq === undefined && this.#messages(id).length === 0) {
      // The messages are older than what the page was sent: the thread shows
      // that there are none, and that is all there is to read.
      seq = this.client.conversations.get(id)?.lastSeq;
    }
    this.#reader.show(seq === undefined ? undefined : { conversationId: id, seq });
  }
}

/** The upper part of a phone: its status, and the icon with the badge. */
class Home {
  readonly element: HTMLElement;
  readonly #time = h("span", { class: "bar-time" });
  readonly #status = h("span");
  readonly #badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
  readonly #icon = h("div", { class: "app-icon" }, icon("chat"), this.#badge);
  readonly #said = spoken();
  readonly #parts = h("p", { class: "parts", "aria-hidden": "true" });
  readonly #mentions = h("p", { class: "mentions" });
  #total: number | undefined;

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
        h("div", { class: "who" }, h("h2", {}, user.name), this.#said, this.#parts, this.#mentions),
      ),
    );
  }

  /** `waiting` is how much of what the user did waits for a connection. */
  update(status: Status, waiting: number): void {
    setText(this.#time, clock(new Date()));
    const word = STATUS[status.state];
    setText(this.#status, waiting > 0 ? `${word} · ${waiting} waiting` : word);
    const why = status.state === "waiting" || status.state === "refused" ? status.reason : "";
    if (this.element.title !== why) this.element.title = why;
  }

  showBadge(
    total: number,
    mentions: number,
    { parts, holds }: ReturnType<typeof sum>,
    more: boolean,
  ): void {
    setText(this.#said, `${total} unread`);
    setText(this.#parts, total === 0 ? "All caught up" : `= ${parts.join(THIN_PLUS)}`);
    // The listed conversations are then not all there are.
    this.#parts.classList.toggle("is-wrong", !holds && !more);
    setText(this.#mentions, mentions > 0 ? plural(mentions, "mention") : "");
    if (total === this.#total) return;

    const before = this.#total;
    this.#total = total;
    this.#badge.hidden = total === 0;
    setText(this.#badge, formatCount(total));
    animate(
      this.#badge,
      [{ transform: "scale(0.6)" }, { transform: "scale(1.25)" }, { transform: "none" }],
      380,
    );
    if (before !== undefined) this.#float(total - before);
  }

  /** Lets what was added or taken away rise from the badge. */
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

/** Tells screen readers, politely and not all the time. */
class Announcer {
  readonly element = h("p", { class: "spoken", "aria-live": "polite" });
  #next = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** What is to be said next; a later call replaces it. */
  say(text: string): void {
    this.#next = text;
    if (text === this.element.textContent) return;
    this.#timer ??= setTimeout(() => this.#speak(), ANNOUNCE_MS);
  }

  /** The next change is the user's doing: say it soon. */
  hurry(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#speak(), HURRY_MS);
  }

  #speak(): void {
    this.#timer = undefined;
    setText(this.element, this.#next);
  }
}

/** The conversations of a user, as that user calls them. */
function topicsOf(user: User, { users, conversations }: Cast): Topic[] {
  return conversations
    .filter(({ members }) => members.includes(user.user_id))
    .map(({ conversation_id, name, kind, members, category }) => {
      const other =
        kind === "direct"
          ? users.find(({ user_id }) => user_id !== user.user_id && members.includes(user_id))
          : undefined;
      return {
        id: conversation_id,
        title: other?.name ?? name,
        kind,
        category,
        color: other?.color,
      };
    });
}
