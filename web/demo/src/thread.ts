import type { Level, Seq } from "@badged/sdk";
import { clock, h, oncePerFrame, setText, spoken } from "../../page/dom.js";
import { icon } from "./icons.js";
import type { Topic } from "./list.js";
import { type Message, nameOf, type User } from "./server.js";

/** The levels in the order of the button, with their names. */
const LEVELS = [
  { level: "all", icon: "bell", name: "everything counts" },
  { level: "mentions", icon: "mention", name: "only mentions count" },
  { level: "none", icon: "muted", name: "muted" },
] as const;

// A thread within this many pixels of its end counts as scrolled to the end.
const END_PX = 24;

export interface ThreadOptions {
  readonly topic: Topic;
  readonly owner: User;
  readonly users: ReadonlyMap<string, User>;
  /** The first unread message when the conversation was opened, or 0. */
  readonly firstUnreadSeq: Seq;
  readonly onClose: () => void;
  readonly onSend: (text: string) => Promise<void>;
  readonly onRecall: (message: Message) => void;
  readonly onLevel: (level: Level) => void;
  readonly onMarkUnread: () => void;
  /** Called with a message, and those of others from there on. */
  readonly onMarkFrom: (from: Seq, seqs: readonly Seq[]) => void;
  /** Called when the visible messages have changed. */
  readonly onScroll: () => void;
}

/** An open conversation. */
export class Thread {
  readonly element: HTMLElement;
  readonly #options: ThreadOptions;
  readonly #messages: HTMLElement;
  readonly #empty = h("p", { class: "thread-empty" }, "No messages on this page yet.");
  readonly #below: HTMLButtonElement;
  readonly #belowCount = h("span");
  readonly #compose: Compose | undefined;
  readonly #back: HTMLButtonElement;
  readonly #level = h("button", { class: "thread-button", type: "button" });
  #levelAt = -1;
  #drawn: readonly Message[] = [];

  constructor(options: ThreadOptions) {
    this.#options = options;
    const { topic, owner } = options;

    this.#back = h(
      "button",
      {
        class: "thread-button",
        type: "button",
        "aria-label": `Back to ${owner.name}'s conversations`,
      },
      icon("back"),
    );
    this.#back.addEventListener("click", options.onClose);
    const unread = h(
      "button",
      { class: "thread-button", type: "button", "aria-label": "Mark unread", title: "Mark unread" },
      icon("unread"),
    );
    unread.addEventListener("click", options.onMarkUnread);
    this.#level.addEventListener("click", () => {
      const next = LEVELS[(this.#levelAt + 1) % LEVELS.length];
      if (next) options.onLevel(next.level);
    });
    this.#messages = h("div", {
      class: "messages",
      role: "log",
      tabindex: "0",
      "aria-label": `Messages in ${topic.title}`,
    });
    this.#below = h(
      "button",
      { class: "below", type: "button", hidden: true },
      icon("down"),
      this.#belowCount,
    );
    this.#below.addEventListener("click", () => this.#scrollToEnd());

    this.element = h(
      "section",
      { class: "thread", "aria-label": `${topic.title}, opened by ${owner.name}` },
      h(
        "header",
        { class: "thread-head" },
        this.#back,
        h("h3", {}, topic.title),
        this.#level,
        unread,
      ),
      h("div", { class: "thread-body" }, this.#messages, this.#below),
    );
    if (topic.kind !== "feed") {
      this.#compose = new Compose(topic, options.onSend);
      this.element.append(this.#compose.element);
    }
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape") options.onClose();
    });
    this.#messages.addEventListener(
      "scroll",
      oncePerFrame(() => {
        this.#updateBelow();
        options.onScroll();
      }),
      { passive: true },
    );
  }

  get topic(): Topic {
    return this.#options.topic;
  }

  /** Call it once the thread is attached to the page. */
  opened(): void {
    this.#back.focus({ preventScroll: true });
    const divider = this.#messages.querySelector<HTMLElement>(".divider");
    if (divider) this.#messages.scrollTop = divider.offsetTop - 8;
    else this.#scrollToEnd();
  }

  /** Shows the messages, and what the conversation adds to the total. */
  update(messages: readonly Message[], level: Level, online: boolean): void {
    this.#compose?.setOnline(online);
    this.#showLevel(level);
    // Actions of the chat, unlike badge commands, need a connection.
    this.#level.disabled = !online;
    this.element.classList.toggle("is-offline", !online);
    if (messages === this.#drawn) return;
    const atEnd = this.#atEnd;
    const { scrollTop } = this.#messages;
    const known = new Set(this.#drawn);
    const grown = this.#drawn.every((message, i) => messages[i] === message);
    if (!grown) {
      // A message arrived late or was recalled, or old ones were dropped: redraw.
      known.clear();
      this.#messages.replaceChildren();
    }
    if (messages.length === 0) this.#messages.append(this.#empty);
    else this.#empty.remove();
    messages.forEach((message, i) => {
      if (!known.has(message)) this.#messages.append(...this.#draw(message, messages[i - 1]));
    });
    this.#drawn = messages;
    if (atEnd) this.#scrollToEnd();
    else if (!grown) this.#messages.scrollTop = scrollTop;
    this.#updateBelow();
  }

  /**
   * The newest message on the screen; undefined if the page has no messages of
   * the conversation.
   */
  get newestShown(): Seq | undefined {
    if (this.#atEnd) return this.#drawn.at(-1)?.seq;
    const bottom = this.#messages.scrollTop + this.#messages.clientHeight;
    const shown = this.#bubbles
      .reverse()
      .find((bubble) => bubble.offsetTop + bubble.offsetHeight <= bottom);
    return shown === undefined ? undefined : Number(shown.dataset.seq);
  }

  get #bubbles(): HTMLElement[] {
    return [...this.#messages.querySelectorAll<HTMLElement>(".message")];
  }

  get #atEnd(): boolean {
    const { scrollTop, clientHeight, scrollHeight } = this.#messages;
    return scrollTop + clientHeight >= scrollHeight - END_PX;
  }

  #showLevel(level: Level): void {
    const at = LEVELS.findIndex((known) => known.level === level);
    const shown = LEVELS[at];
    const next = LEVELS[(at + 1) % LEVELS.length];
    if (at === this.#levelAt || !shown || !next) return;
    this.#levelAt = at;
    this.#level.replaceChildren(icon(shown.icon));
    const label = `Now ${shown.name}. Change to: ${next.name}`;
    this.#level.title = label;
    this.#level.setAttribute("aria-label", label);
  }

  #scrollToEnd(): void {
    this.#messages.scrollTop = this.#messages.scrollHeight;
  }

  #updateBelow(): void {
    const shown = this.newestShown ?? 0;
    const below = this.#drawn.filter(({ seq }) => seq > shown).length;
    this.#below.hidden = below === 0 || this.#atEnd;
    setText(this.#belowCount, String(below));
    this.#below.setAttribute("aria-label", `Go to the newest message, ${below} further down`);
  }

  #draw(message: Message, before: Message | undefined): HTMLElement[] {
    const { owner, users, topic, firstUnreadSeq } = this.#options;
    const sender = users.get(message.sender_id);
    const own = message.sender_id === owner.user_id;
    const name = nameOf(message.sender_id, users);
    const starts = before?.sender_id !== message.sender_id;

    const bubble = h("div", {
      class: `message${own ? " is-own" : ""}${starts ? " is-first" : ""}`,
      "data-seq": String(message.seq),
      title: `#${message.seq}, ${clock(new Date(message.time))}`,
    });
    bubble.style.setProperty("--user", sender?.color ?? "var(--quiet)");
    if (starts && !own && topic.kind !== "direct") {
      bubble.append(h("span", { class: "message-sender" }, name), spoken(": "));
    } else {
      bubble.append(spoken(`${own ? "You" : name}: `));
    }
    if (message.recalled) {
      bubble.classList.add("is-recalled");
      bubble.append(h("span", { class: "message-text" }, "Message recalled"));
    } else {
      bubble.append(h("span", { class: "message-text" }, ...this.#withMentions(message.text)));
      if (own) bubble.append(this.#recallButton(message));
      else bubble.append(this.#markButton(message));
    }

    const firstUnread =
      firstUnreadSeq > 0 &&
      message.seq >= firstUnreadSeq &&
      (before === undefined || before.seq < firstUnreadSeq);
    return firstUnread ? [h("div", { class: "divider" }, "New"), bubble] : [bubble];
  }

  #recallButton(message: Message): HTMLButtonElement {
    const button = h(
      "button",
      {
        class: "recall",
        type: "button",
        title: "Recall",
        "aria-label": `Recall the message ${message.text}`,
      },
      icon("recall"),
    );
    button.addEventListener("click", () => {
      button.disabled = true;
      // The button disappears with the text: move the focus.
      this.#messages.focus({ preventScroll: true });
      this.#options.onRecall(message);
    });
    return button;
  }

  /** The button that makes a message count again, and those of others after it. */
  #markButton({ seq, text }: Message): HTMLButtonElement {
    const title = "Unread from here";
    const button = h(
      "button",
      { class: "mark", type: "button", title, "aria-label": `${title}: ${text}` },
      icon("unread"),
    );
    button.addEventListener("click", () => {
      const from = this.#drawn.filter(
        (message) =>
          message.seq >= seq &&
          message.sender_id !== this.#options.owner.user_id &&
          !message.recalled,
      );
      // More are not marked at once; a page shows fewer.
      this.#options.onMarkFrom(
        seq,
        from.slice(-1000).map((message) => message.seq),
      );
    });
    return button;
  }

  /** The text with mentions highlighted. */
  #withMentions(text: string): (Node | string)[] {
    const names = new Set([...this.#options.users.values()].map(({ name }) => `@${name}`));
    return text.split(/(@[\p{L}\p{N}_-]+)/u).map((part) => {
      if (!names.has(part)) return part;
      const me = part === `@${this.#options.owner.name}`;
      return h("span", { class: me ? "mention is-me" : "mention" }, part);
    });
  }
}

/** The input for a message. */
class Compose {
  readonly element: HTMLFormElement;
  readonly #field: HTMLInputElement;
  readonly #button: HTMLButtonElement;
  readonly #failed = h(
    "p",
    { class: "compose-failed", role: "alert", hidden: true },
    "Not sent. Try again.",
  );

  constructor(topic: Topic, onSend: (text: string) => Promise<void>) {
    this.#field = h("input", {
      type: "text",
      name: "text",
      maxlength: "300",
      autocomplete: "off",
      enterkeyhint: "send",
      placeholder: "Message",
      "aria-label": `Message to ${topic.title}`,
    });
    this.#button = h("button", { type: "submit", "aria-label": "Send" }, icon("send"));
    this.element = h("form", { class: "compose" }, this.#failed, this.#field, this.#button);
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#submit(onSend);
    });
  }

  setOnline(online: boolean): void {
    this.#button.disabled = !online;
    this.#field.disabled = !online;
    this.#field.placeholder = online ? "Message" : "Offline";
  }

  async #submit(onSend: (text: string) => Promise<void>): Promise<void> {
    const text = this.#field.value.trim();
    if (text === "") return;
    this.#field.value = "";
    this.#failed.hidden = true;
    try {
      await onSend(text);
    } catch {
      this.#failed.hidden = false;
      // Keep text that was typed in the meantime.
      this.#field.value ||= text;
    }
  }
}
