import { h, setText } from "../../page/dom.js";
import { categoriesPanel } from "./categories.js";
import { conversationsPanel } from "./conversations.js";
import { deliveredPanel } from "./delivered.js";
import { devicesPanel } from "./devices.js";
import { counted, forInput, when } from "./format.js";
import { HistoryPanel } from "./history.js";
import { idText, spacesIn } from "./ids.js";
import { hashOf, userPlace } from "./place.js";
import type { Device, Explanation } from "./server.js";
import { disagreementPanel, summaryPanel } from "./summary.js";
import { uncountedPanel } from "./uncounted.js";
import type { Page, View } from "./view.js";

const SLIDER_STEPS = 200;
/** Delivered messages per page. */
const DELIVERED = 50;

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
    "aria-describedby": "user-spaces",
  });
  readonly #spaces = h("span", { class: "hint", id: "user-spaces" });
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
  /** The requested time in the server's format, which is finer than the input's. */
  #time: string | undefined;
  #conversation: string | undefined;
  #step: string | undefined;
  /** The range of the slider. */
  #earliest = 0;
  #latest = 0;
  /** The user that the range belongs to. */
  #sliderOf = "";
  #asked = 0;
  #history: HistoryPanel | undefined;

  constructor(page: Page) {
    this.#page = page;
    const now = h("button", { class: "button", type: "button" }, "Now");
    const form = h(
      "form",
      { class: "panel form", "aria-label": "User to explain" },
      h(
        "div",
        { class: "field is-wide" },
        h("p", { class: "field-head" }, h("label", { for: "user" }, "User"), this.#spaces),
        this.#user,
      ),
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
      this.#go();
    });
    now.addEventListener("click", () => {
      this.#setTime(undefined);
      this.#slider.value = String(SLIDER_STEPS);
      if (this.#user.value) this.#go();
    });
    this.#user.addEventListener("input", () => {
      this.#conversation = undefined;
      setText(this.#spaces, spacesIn(this.#user.value));
    });
    this.#at.addEventListener("input", () => {
      this.#time = this.#at.value === "" ? undefined : new Date(this.#at.value).toISOString();
    });
    const chosen = () => {
      const part = Number(this.#slider.value) / SLIDER_STEPS;
      return new Date(this.#earliest + part * (this.#latest - this.#earliest));
    };
    this.#slider.addEventListener("input", () => {
      const atEnd = Number(this.#slider.value) === SLIDER_STEPS;
      this.#setTime(atEnd ? undefined : chosen().toISOString());
      this.#slider.setAttribute("aria-valuetext", atEnd ? "now" : when(chosen()));
    });
    this.#slider.addEventListener("change", () => this.#go());
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () =>
      this.#history?.redraw(),
    );
    this.element = h("div", { class: "view" }, form, this.#answer);
  }

  /** Not polled: an explanation searches the log. */
  async refresh(): Promise<void> {}

  /** Shows the parameters of a URL: `user`, and optionally `at`, `conversation` and `step`. */
  arrive(params: URLSearchParams): void {
    const user = params.get("user");
    if (user === null) return;
    this.#user.value = user;
    setText(this.#spaces, spacesIn(user));
    this.#setTime(params.get("at") ?? undefined);
    this.#conversation = params.get("conversation") ?? undefined;
    this.#step = params.get("step") ?? undefined;
    void this.#explain();
  }

  #setTime(time: string | undefined): void {
    const parsed = time === undefined ? Number.NaN : Date.parse(time);
    this.#time = time;
    this.#at.value = Number.isNaN(parsed) ? "" : forInput(new Date(parsed));
  }

  /** Opens the URL for the values of the form. */
  #go(): void {
    this.#page.open(
      hashOf("users", {
        user: this.#user.value,
        at: this.#time,
        conversation: this.#conversation,
      }),
    );
  }

  async #explain(): Promise<void> {
    const user = this.#user.value;
    const question = { at: this.#time, conversation: this.#conversation };
    this.#asked += 1;
    const asked = this.#asked;
    this.#answer.setAttribute("aria-busy", "true");
    let answer: Explanation | Error;
    let devices: readonly Device[] = [];
    try {
      [answer, devices] = await Promise.all([
        this.#page.server.explain(user, { ...question, history: true, delivered: DELIVERED }),
        this.#page.server.devices(user),
      ]);
    } catch (error) {
      answer = error instanceof Error ? error : new Error(String(error));
    }
    if (asked !== this.#asked) return; // superseded by a newer request
    this.#answer.removeAttribute("aria-busy");
    if (answer instanceof Error) {
      this.#answer.replaceChildren(
        h("p", { class: "notice is-bad", role: "alert" }, answer.message),
      );
      return;
    }
    this.#setSlider(answer);
    this.#answer.replaceChildren(...this.#draw(answer, question, devices));
  }

  /** Starts the slider before the first event of the current explanation. */
  #setSlider(x: Explanation): void {
    if (x.at !== undefined && this.#sliderOf === x.user_id) {
      const span = this.#latest - this.#earliest;
      const part = span > 0 ? (Date.parse(x.at) - this.#earliest) / span : 1;
      this.#slider.value = String(Math.round(part * SLIDER_STEPS));
      return;
    }
    const times = [...(x.history?.steps ?? []), ...x.uncounted].map(({ folded_at }) =>
      Date.parse(folded_at),
    );
    this.#latest = Date.now();
    this.#earliest = Math.min(this.#latest, ...times.map((time) => time - 1000));
    this.#sliderOf = x.user_id;
    this.#slider.disabled = this.#earliest >= this.#latest;
    this.#slider.value = String(SLIDER_STEPS);
    this.#slider.setAttribute("aria-valuetext", "now");
    setText(
      this.#sliderFrom,
      this.#slider.disabled ? "" : `since ${when(new Date(this.#earliest))}`,
    );
  }

  #draw(
    x: Explanation,
    question: { at: string | undefined; conversation: string | undefined },
    devices: readonly Device[],
  ): HTMLElement[] {
    this.#history = undefined;
    const parts = [summaryPanel(x)];
    // They are those of now.
    if (question.at === undefined && devices.length > 0) parts.push(devicesPanel(devices));
    if (!x.agrees) parts.push(disagreementPanel(x, () => void this.#heal(x.user_id)));
    if (x.version === 0) {
      const text = `No event of the log names this user${x.at ? " by then" : ""}. Upper and lower case and spaces of an id count, and events that are not folded yet are missing: the overview says how far behind the projector is.`;
      return [...parts, h("p", { class: "empty panel" }, text)];
    }
    if (question.conversation !== undefined) {
      parts.push(
        h(
          "p",
          { class: "notice is-plain" },
          h("span", {}, "Below is conversation ", idText(question.conversation), " only."),
          h(
            "a",
            { href: userPlace(x.user_id, question.at === undefined ? {} : { at: question.at }) },
            "Show all conversations",
          ),
        ),
      );
    }
    if (x.history && x.history.steps.length > 0) {
      this.#history = new HistoryPanel(x, this.#step, ({ position }) => {
        this.#step = position;
        // Replaces the URL, for a reload or to share, without a history entry.
        this.#page.replace(hashOf("users", { user: x.user_id, ...question, step: position }));
      });
      parts.push(this.#history.element);
    }
    if (Object.keys({ ...x.categories, ...x.levels }).length > 0) parts.push(categoriesPanel(x));
    parts.push(...conversationsPanel(x));
    if (x.archived_until !== undefined) {
      const text = `What came until ${when(x.archived_until)} is archived: it is counted, and not listed.`;
      parts.push(h("p", { class: "soft" }, text));
    }
    parts.push(
      deliveredPanel(x, (before) => this.#older(x.user_id, { ...question, before })),
      ...(x.uncounted.length > 0 ? [uncountedPanel(x)] : []),
    );
    return parts;
  }

  /** The messages that were delivered before a place in the log. */
  async #older(
    user: string,
    question: { at: string | undefined; conversation: string | undefined; before: string },
  ): Promise<Explanation["delivered"]> {
    let page: Explanation["delivered"];
    await this.#page.act(async () => {
      const answer = await this.#page.server.explain(user, { ...question, delivered: DELIVERED });
      page = answer.delivered;
    }, "");
    if (page !== undefined) this.#page.say(`${counted(page.messages.length, "message")} more`);
    return page;
  }

  async #heal(user: string): Promise<void> {
    const started = await this.#page.act(
      () => this.#page.server.startJob("rebuild", { user }),
      `${user} is being made what the log says`,
    );
    if (started) this.#page.open("#jobs");
  }
}
