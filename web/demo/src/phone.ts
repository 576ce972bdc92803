import {
  type Badge,
  Badged,
  countOf,
  levelOf,
  type MarkOptions,
  type OpenCategory,
  type OpenConversation,
  type Seq,
} from "@badged/sdk";
import { isNewer } from "@badged/sdk/worker";
import { animate, h, oncePerFrame, plural, setText, spoken } from "../../page/dom.js";
import type { Chat } from "./chat.js";
import { type Count, unread } from "./count.js";
import { Home } from "./home.js";
import { BELL, ConversationList, type RowState, type Topic } from "./list.js";
import { sum } from "./parts.js";
import {
  type Cast,
  type DemoServer,
  type Message,
  nameOf,
  type PhoneState,
  type User,
} from "./server.js";
import { Thread } from "./thread.js";

// Least time between announcements of a phone's badge to screen readers, unless
// its user did something.
const ANNOUNCE_MS = 10_000;
const HURRY_MS = 1_000;

// Thin spaces, because a phone is narrow.
const THIN_PLUS = "\u2009+\u2009";

export interface PhoneOptions {
  readonly user: User;
  readonly cast: Cast;
  readonly chat: Chat;
  readonly server: DemoServer;
  /** The device under which the app is registered for pushes. */
  readonly device: string | undefined;
  /** The badge or the connection changed. */
  readonly onChange: () => void;
}

/** The phone of one user, with its own badge client. */
export class Phone {
  readonly element: HTMLElement;
  readonly client: Badged;
  readonly user: User;
  readonly #options: PhoneOptions;
  readonly #users: ReadonlyMap<string, User>;
  readonly #topics: readonly Topic[];
  readonly #list: ConversationList;
  readonly #screen: HTMLElement;
  readonly #home: Home;
  readonly #switch: HTMLInputElement;
  readonly #readAllButton: HTMLButtonElement;
  readonly #closeButton: HTMLButtonElement;
  readonly #announcer = new Announcer();
  #count: Count = "messages";
  #thread: Thread | undefined;
  /** Reads the conversation of the thread. */
  #reading: OpenConversation | undefined;
  #bell: OpenCategory | undefined;
  #closed = false;
  #pushes = 0;
  #pushed: PhoneState["pushed"];
  /** The push that was the newest when the app was closed: the app knew more. */
  #known: PhoneState["pushed"];
  /** The total in the tables, if the phone does not have it yet. */
  #behind: number | undefined;
  /** The chat that the phone shows while it is offline. */
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
      ...(options.device !== undefined && { device: options.device }),
    });

    this.#list = new ConversationList(
      this.#topics,
      user.name,
      (topic) => this.#open(topic),
      (category) => this.#choose(category),
    );
    this.#screen = h("div", { class: "app" }, this.#list.element);
    this.#home = new Home(user);
    this.#switch = h("input", { type: "checkbox", role: "switch", checked: true });
    this.#switch.addEventListener("change", () => this.#setOnline(this.#switch.checked));
    this.#readAllButton = h(
      "button",
      { class: "quiet-button", type: "button" },
      "Read all",
      spoken(` of ${user.name}`),
    );
    this.#readAllButton.addEventListener("click", () => this.#readAll());
    this.#closeButton = h("button", { class: "quiet-button", type: "button" });
    this.#closeButton.addEventListener("click", () => this.#ask(!this.#closed));
    this.#home.onOpen = () => this.#ask(false);
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
        this.#closeButton,
        this.#readAllButton,
      ),
      this.#announcer.element,
    );
    this.element.style.setProperty("--user", user.color);

    this.client.on("total", () => this.refresh());
    this.client.on("conversation", () => this.refresh());
    this.client.on("status", ({ state }) => {
      if (state === "refused") this.#switch.checked = false;
      this.refresh();
    });
  }

  /** Connects the app, or leaves it closed. */
  start(state: PhoneState | undefined): void {
    if (state !== undefined) this.setState(state);
    if (!this.#closed) this.client.start();
    this.refresh();
  }

  /** Draws the changes before the next paint. */
  readonly refresh = oncePerFrame(() => {
    this.#updateThread();
    // Before the status is drawn: it may add pending commands.
    if (!this.#closed) this.#read();
    this.#showControls();
    if (this.#closed) {
      this.#home.showClosed(this.total, this.#pushes);
      this.#announcer.say(`${this.user.name}: app closed, ${unread(this.total, "messages")}`);
      this.#options.onChange();
      return;
    }
    const { badge, conversations, status, more, waiting } = this.client;
    this.element.dataset.status = status.state;
    this.#home.update(status, status.state === "online" ? 0 : waiting.length);
    if (badge !== undefined) {
      const count = countOf(this.client, { count: this.#count });
      const said = unread(count, this.#count);
      const { parts, holds } = sum(badge, conversations.values());
      const right = this.#count === "messages" ? holds : parts.length === count;
      const what =
        this.#count === "messages"
          ? `= ${parts.join(THIN_PLUS)}`
          : `with ${plural(badge.total, "message")}`;
      // With more, the list does not have all conversations.
      this.#home.showBadge(count, said, what, right || more, badge.mentions);
      const behind = this.#behind === undefined ? "" : `, stale: now ${this.#behind}`;
      this.#announcer.say(
        `${this.user.name}: ${said}, ${plural(badge.mentions, "mention")}${behind}`,
      );
    }
    this.#list.update(
      (category, count = this.#count) => countOf(this.client, { category, count }),
      (topic) => this.#row(topic),
    );
    this.#options.onChange();
  });

  /** The number on the icon. */
  get total(): number {
    const { badge } = this.client;
    if (!this.#closed) return countOf(this.client, { count: this.#count });
    const pushed = this.#pushed;
    const isNews =
      pushed !== undefined &&
      !(pushed.epoch === this.#known?.epoch && pushed.version === this.#known.version) &&
      isNewer(pushed, badge);
    return isNews ? pushed.number : (badge?.total ?? 0);
  }

  /** Whether the app is closed. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Shows what the push service knows of the phone, and opens or closes the app. */
  setState({ closed, pushes, pushed }: PhoneState): void {
    const changes = closed !== this.#closed;
    // The app was connected: what was pushed before is older.
    if (changes && closed) {
      this.#known = this.client.status.state === "online" ? this.#pushed : undefined;
    }
    this.#pushes = pushes;
    this.#pushed = pushed;
    this.#closed = closed;
    if (!changes) {
      if (closed) this.refresh();
      return;
    }
    this.#announcer.hurry();
    this.element.classList.toggle("is-closed", closed);
    this.#screen.inert = closed;
    this.#home.setClosed(closed);
    if (closed) {
      this.#leaveThread();
      this.client.stop();
    } else if (this.#switch.checked) {
      this.client.start();
    }
    this.refresh();
  }

  /** Asks the demo to open or close the app: other pages show the same phone. */
  #ask(closed: boolean): void {
    this.#announcer.hurry();
    this.#options.server
      .setClosed(this.user.user_id, closed)
      .then((state) => this.setState(state))
      .catch(() => {}); // the page shows that the server is away
  }

  #showControls(): void {
    const { name } = this.user;
    const offers = this.#closed ? "Open app" : "Close app";
    if (this.#closeButton.dataset.offers !== offers) {
      this.#closeButton.dataset.offers = offers;
      this.#closeButton.replaceChildren(offers, spoken(` of ${name}`));
    }
    this.#closeButton.disabled = !this.#closed && !this.#switch.checked;
    this.#readAllButton.disabled = this.#switch.disabled = this.#closed;
  }

  /** What the badges count. */
  get count(): Count {
    return this.#count;
  }

  set count(count: Count) {
    this.#count = count;
    this.refresh();
  }

  /** Marks the numbers as out of date, with the correct total; undefined removes the mark. */
  setBehind(total: number | undefined): void {
    if (total === this.#behind) return;
    this.#behind = total;
    this.element.classList.toggle("is-behind", total !== undefined);
    this.#home.showBehind(total);
    this.refresh();
  }

  /** Shows that the numbers have recovered. */
  showCaughtUp(): void {
    this.#home.showCaughtUp();
  }

  /** Marks the phone if the selected event changed its badge. */
  setChanged(changed: boolean): void {
    this.element.classList.toggle("is-changed", changed);
  }

  #updateThread(): void {
    if (this.#thread === undefined) return;
    const { id } = this.#thread.topic;
    const { conversations, status } = this.client;
    const conversation = conversations.get(id);
    const level = conversation ? levelOf(conversation, this.#levels) : "all";
    this.#thread.update(this.#messages(id), level, status.state === "online");
  }

  /** The levels of categories. */
  get #levels(): Badge["levels"] {
    return this.client.badge?.levels ?? {};
  }

  #messages(conversationId: string): readonly Message[] {
    if (this.#frozen !== undefined) return this.#frozen.get(conversationId) ?? [];
    return this.#options.chat.messages(conversationId);
  }

  #row(topic: Topic): RowState {
    const conversation = this.client.conversations.get(topic.id);
    const last = this.#messages(topic.id).at(-1);
    // The count may include messages older than those on the page.
    const none = conversation === undefined ? "No messages yet" : "";
    return {
      conversation,
      levels: this.#levels,
      last,
      preview: last ? this.#preview(topic, last) : none,
    };
  }

  #preview({ kind }: Topic, { sender_id, text, recalled }: Message): string {
    if (recalled) return "Message recalled";
    if (sender_id === this.user.user_id) return `You: ${text}`;
    if (kind === "direct" || kind === "feed") return text;
    return `${nameOf(sender_id, this.#users)}: ${text}`;
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

  /** While the bell is open, its notifications are seen. They stay unread. */
  #choose(category: string | undefined): void {
    this.#bell?.close();
    this.#bell = category === BELL ? this.client.openCategory(BELL) : undefined;
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
      onMarkFrom: (fromSeq, seqs) =>
        this.#markUnread(topic, topic.kind === "room" ? { fromSeq } : { seqs }),
      onScroll: () => this.#read(),
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
    this.#leaveThread();
    this.#list.focus(topic);
  }

  #leaveThread(): void {
    this.#reading?.close();
    this.#reading = undefined;
    this.#thread?.element.remove();
    this.#thread = undefined;
    this.#list.element.inert = false;
  }

  /** Also closes the conversation, because an open one is read. */
  #markUnread(topic: Topic, messages?: MarkOptions): void {
    this.#announcer.hurry();
    this.#close(topic);
    // Refused if the conversation never had a message: then nothing changes.
    this.client.markUnread(topic.id, messages).catch(() => {});
    this.refresh();
  }

  /** Tells the client how far the open conversation is on the screen. */
  #read(): void {
    if (this.#thread === undefined) return;
    const { id } = this.#thread.topic;
    let seq: Seq | undefined = this.#thread.newestShown;
    if (seq === undefined && this.#messages(id).length === 0) {
      // The unread messages are older than those on the page: the user has seen
      // all that the thread can show.
      seq = this.client.conversations.get(id)?.lastSeq;
    }
    if (seq === undefined) return;
    if (this.#reading === undefined) this.#reading = this.client.open(id, { upToSeq: seq });
    else this.#reading.show(seq);
  }
}

/** Announces texts to screen readers, politely and at a limited rate. */
class Announcer {
  readonly element = h("p", { class: "spoken", "aria-live": "polite" });
  #next = "";
  #timer: ReturnType<typeof setTimeout> | undefined;

  /** Sets the next announcement; a later call replaces it. */
  say(text: string): void {
    this.#next = text;
    if (text === this.element.textContent) return;
    this.#timer ??= setTimeout(() => this.#speak(), ANNOUNCE_MS);
  }

  /** The user causes the next change: announce it soon. */
  hurry(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#speak(), HURRY_MS);
  }

  #speak(): void {
    this.#timer = undefined;
    setText(this.element, this.#next);
  }
}

/** The conversations of a user, with the names that the user sees. */
function topicsOf(user: User, { users, conversations }: Cast): Topic[] {
  return conversations
    .filter(({ members }) => members.includes(user.user_id))
    .map(({ conversation_id, name, kind, members, category, late }) => {
      const other =
        kind === "direct"
          ? users.find(({ user_id }) => user_id !== user.user_id && members.includes(user_id))
          : undefined;
      return {
        id: conversation_id,
        title: other?.name ?? name,
        kind,
        category,
        late: late ?? false,
        color: other?.color,
      };
    });
}
