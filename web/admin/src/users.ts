import { h, setText, spoken } from "../../page/dom.js";
import { count, counted, forInput, when } from "./format.js";
import { table } from "./overview.js";
import type { ExplainedConversation, Explanation, LoggedEvent } from "./server.js";
import type { Page, View } from "./view.js";

const SLIDER_STEPS = 200;

/** The badge of a user, message by message, now or at a time. */
export class Users implements View {
  readonly name = "users";
  readonly title = "Users";
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #user = h("input", {
    id: "user",
    type: "search",
    autocomplete: "off",
    spellcheck: "false",
    autocapitalize: "off",
    required: true,
    placeholder: "User id",
  });
  readonly #at = h("input", { id: "at", type: "datetime-local", step: "1" });
  readonly #slider = h("input", {
    id: "slider",
    type: "range",
    min: "0",
    max: String(SLIDER_STEPS),
    value: String(SLIDER_STEPS),
    disabled: true,
  });
  readonly #sliderFrom = h("span", { class: "soft" });
  readonly #answer = h("div", { class: "view", "aria-live": "polite" });
  /** Between them the slider chooses. */
  #earliest = 0;
  #latest = 0;
  /** The user whose times the slider has. */
  #sliderOf = "";
  #asked = 0;

  constructor(page: Page) {
    this.#page = page;
    const now = h("button", { class: "button", type: "button" }, "Now");
    const form = h(
      "form",
      { class: "panel form" },
      h("div", { class: "field is-wide" }, h("label", { for: "user" }, "User"), this.#user),
      h("div", { class: "field" }, h("label", { for: "at" }, "As of (empty for now)"), this.#at),
      now,
      h("button", { class: "button is-main", type: "submit" }, "Explain"),
      h(
        "div",
        { class: "slider" },
        h("label", { for: "slider", class: "soft" }, "Travel in time"),
        this.#slider,
        this.#sliderFrom,
      ),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void this.#explain();
    });
    now.addEventListener("click", () => {
      this.#at.value = "";
      this.#slider.value = String(SLIDER_STEPS);
      if (this.#user.value) void this.#explain();
    });
    const chosen = () => {
      const part = Number(this.#slider.value) / SLIDER_STEPS;
      return new Date(this.#earliest + part * (this.#latest - this.#earliest));
    };
    this.#slider.addEventListener("input", () => {
      const atEnd = Number(this.#slider.value) === SLIDER_STEPS;
      this.#at.value = atEnd ? "" : forInput(chosen());
      this.#slider.setAttribute("aria-valuetext", atEnd ? "now" : when(chosen()));
    });
    this.#slider.addEventListener("change", () => void this.#explain());
    this.element = h("div", { class: "view" }, form, this.#answer);
  }

  /** An explanation is asked for, not polled: it searches the log. */
  async refresh(): Promise<void> {}

  /** Looks up a user, as from another view. */
  show(user: string): void {
    this.#user.value = user;
    this.#at.value = "";
    void this.#explain();
  }

  async #explain(): Promise<void> {
    const user = this.#user.value;
    const at = this.#at.value === "" ? undefined : new Date(this.#at.value);
    this.#asked += 1;
    const asked = this.#asked;
    this.#answer.setAttribute("aria-busy", "true");
    let answer: Explanation | Error;
    try {
      answer = await this.#page.server.explain(user, at);
    } catch (error) {
      answer = error instanceof Error ? error : new Error(String(error));
    }
    if (asked !== this.#asked) return; // somebody else was asked for meanwhile
    this.#answer.removeAttribute("aria-busy");
    if (answer instanceof Error) {
      this.#answer.replaceChildren(
        h("p", { class: "notice is-bad", role: "alert" }, answer.message),
      );
      return;
    }
    this.#setSlider(answer);
    this.#answer.replaceChildren(...this.#draw(answer));
  }

  /** The slider begins before the first event that the explanation of now has. */
  #setSlider(x: Explanation): void {
    if (x.at !== undefined) return;
    const times = [
      ...(x.conversations ?? []).flatMap((c) => [
        ...(c.messages ?? []),
        ...[c.last_read, c.marked_by, c.level_by].filter((e) => e !== undefined),
      ]),
      ...(x.uncounted ?? []),
    ].map(({ appended_at }) => Date.parse(appended_at));
    this.#latest = Date.now();
    if (this.#sliderOf !== x.user_id) this.#earliest = this.#latest;
    this.#earliest = Math.min(this.#earliest, ...times.map((time) => time - 1000));
    this.#sliderOf = x.user_id;
    this.#slider.disabled = this.#earliest >= this.#latest;
    this.#slider.value = String(SLIDER_STEPS);
    this.#slider.setAttribute("aria-valuetext", "now");
    setText(
      this.#sliderFrom,
      this.#slider.disabled ? "" : `since ${when(new Date(this.#earliest))}`,
    );
  }

  #draw(x: Explanation): HTMLElement[] {
    const conversations = x.conversations ?? [];
    const uncounted = x.uncounted ?? [];
    const parts = [this.#summary(x)];
    if (!x.agrees) parts.push(this.#disagreement(x));
    if (x.version === 0) {
      parts.push(
        h(
          "p",
          { class: "empty panel" },
          `Nothing has ever happened to this user${x.at ? " by then" : ""}.`,
        ),
      );
      return parts;
    }
    parts.push(
      conversations.length === 0
        ? h("p", { class: "empty panel" }, "Nothing is unread.")
        : h(
            "ul",
            { class: "cards", "aria-label": "Conversations" },
            ...conversations.map(conversation),
          ),
    );
    if (x.more_conversations > 0) {
      parts.push(
        h(
          "p",
          { class: "soft" },
          `and ${counted(x.more_conversations, "conversation")} more, which add ${count(x.more_adds)}`,
        ),
      );
    }
    if (uncounted.length > 0) {
      const rows = uncounted.map((e) =>
        h(
          "tr",
          {},
          h("td", { class: "nowrap" }, when(e.appended_at)),
          h("td", { class: "mono" }, e.type ?? ""),
          h("td", {}, [e.conversation_id, e.seq].filter((v) => v !== undefined).join(" · ")),
          h("td", { class: "wide" }, e.detail),
          h("td", { class: "mono wide" }, e.event_id),
        ),
      );
      parts.push(
        table(
          `Events that changed nothing that is counted${x.more_uncounted > 0 ? `, the newest of ${count(x.more_uncounted + uncounted.length)}` : ""}`,
          ["Came", "Type", "About", "Why", "Event"],
          h("tbody", {}, ...rows),
        ),
      );
    }
    return parts;
  }

  #summary(x: Explanation): HTMLElement {
    const categories = Object.entries(x.categories).map(([name, n]) => `${name} ${count(n)}`);
    const facts = [
      ["Mentions", count(x.mentions)],
      ["By category", categories.join(" · ") || "–"],
      ["Version", count(x.version)],
      ["Partition", `${x.partition} at ${x.position}`],
      ...(x.table ? [["Epoch", x.table.epoch]] : []),
    ];
    return h(
      "section",
      { class: "panel summary", "aria-label": `Badge of ${x.user_id}` },
      h(
        "p",
        { class: x.total > 0 ? "big-badge" : "big-badge is-zero" },
        spoken("Total "),
        count(x.total),
      ),
      h(
        "div",
        { class: "summary-who" },
        h("h2", {}, x.user_id),
        h("p", { class: "soft" }, x.at === undefined ? "now" : `as of ${when(x.at)}`),
        x.at === undefined && x.agrees
          ? h("p", { class: "good" }, "The tables are what the log says")
          : "",
      ),
      h(
        "dl",
        { class: "facts" },
        ...facts.map(([name = "", value = ""]) =>
          h("div", {}, h("dt", {}, name), h("dd", {}, value)),
        ),
      ),
    );
  }

  #disagreement(x: Explanation): HTMLElement {
    const mend = h(
      "button",
      { class: "button is-main", type: "button" },
      "Make it what the log says",
    );
    mend.addEventListener("click", async () => {
      const started = await this.#page.act(
        () => this.#page.server.startJob("rebuild", { user: x.user_id }),
        `${x.user_id} is being mended`,
      );
      if (started) this.#page.open("jobs");
    });
    return h(
      "div",
      { class: "notice is-bad", role: "alert" },
      h(
        "p",
        {},
        x.table && x.table.total !== x.total
          ? `The tables say ${count(x.table.total)}, the log says ${count(x.total)}.`
          : "The tables are not what the log says.",
      ),
      mend,
    );
  }
}

function conversation(c: ExplainedConversation): HTMLElement {
  const messages = c.messages ?? [];
  const rows = messages.map((m) =>
    h(
      "tr",
      {},
      h(
        "td",
        { class: "number" },
        `${count(m.seq)} `,
        m.mentioned ? h("span", { class: "pill" }, "@", spoken(" mentions the user")) : "",
      ),
      h("td", { class: "nowrap" }, when(m.appended_at)),
      h("td", { class: "mono wide" }, m.event_id),
      h("td", { class: "wide" }, m.source ?? ""),
    ),
  );
  const why = [
    `${counted(c.unread, "unread message")}${c.mentions > 0 ? `, ${counted(c.mentions, "mention")}` : ""}`,
    c.level === "all" ? "" : `level ${c.level}${by(c.level_by)}`,
    c.marked_unread ? `marked unread${by(c.marked_by)}` : "",
    c.last_read ? `read up to ${count(c.last_read.up_to_seq)}${by(c.last_read)}` : "never read",
  ].filter((text) => text);
  return h(
    "li",
    { class: "card panel" },
    h(
      "div",
      { class: "card-head" },
      h(
        "span",
        { class: c.adds > 0 ? "pill is-count" : "pill is-count is-quiet" },
        spoken("adds "),
        count(c.adds),
      ),
      h("h3", {}, c.conversation_id),
      h("span", { class: "soft" }, c.category),
    ),
    h("p", { class: "soft" }, why.join(" · ")),
    rows.length === 0
      ? ""
      : h(
          "div",
          {
            class: "scroll",
            tabindex: "0",
            role: "region",
            "aria-label": `Unread messages of ${c.conversation_id}`,
          },
          h(
            "table",
            { class: "table" },
            h(
              "thead",
              {},
              h(
                "tr",
                {},
                ...["Seq", "Came", "Event", "From"].map((t) => h("th", { scope: "col" }, t)),
              ),
            ),
            h("tbody", {}, ...rows),
          ),
        ),
    c.more_messages > 0
      ? h("p", { class: "soft" }, `and ${counted(c.more_messages, "message")} more`)
      : "",
  );
}

function by(event: LoggedEvent | undefined): string {
  return event === undefined ? "" : ` by ${event.event_id}, ${when(event.appended_at)}`;
}
