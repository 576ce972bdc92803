import { h, setText } from "../../page/dom.js";
import { Arrivals } from "./arrivals.js";
import type { Phone } from "./phone.js";
import type { Cast, CrowdState, DemoServer } from "./server.js";
import { duration, placeOf, SIZES, share, sizeAt, thousands } from "./sizes.js";

const ROOM = "town-hall";
/** Gets a message to the same users, one by one. */
const GROUP = "town-hall-copy";
const BURST = 20;
/** How long a message may take to a phone: reconciliation takes seconds while the bus is cut. */
const PATIENCE_MS = 20_000;

/** The bars are full at this number of rows and milliseconds. */
const MOST = 300_000;

const UNREACHABLE = "The demo does not answer. The page tries again.";

/** The room: a slider for its members, buttons that send messages, and what one costs. */
export class RoomPanel {
  readonly #element: HTMLElement;
  readonly #server: DemoServer;
  readonly #phones: readonly Phone[];
  readonly #arrivals = new Arrivals();
  readonly #members = h("strong", { class: "room-members" }, "–");
  readonly #slider = h("input", {
    type: "range",
    class: "room-slider",
    min: "0",
    max: String(SIZES.length - 1),
    step: "1",
    "aria-label": "Members of the town hall",
    disabled: true,
  });
  readonly #status = h("p", { class: "room-status", role: "status" });
  readonly #room = new Column();
  readonly #group = new Column();
  readonly #buttons: readonly HTMLButtonElement[];
  #state: CrowdState | undefined;
  #lost = true;
  #sending = false;
  /** What the last action has to say. */
  #told: string | undefined;
  /** The slider is being moved: it shows what it would set. */
  #moving = false;
  /** The size that was asked for last, until the server has confirmed it. */
  #asked: number | undefined;

  constructor(element: HTMLElement, cast: Cast, phones: readonly Phone[], server: DemoServer) {
    this.#element = element;
    this.#server = server;
    const inIt = cast.conversations.find((c) => c.conversation_id === ROOM)?.members ?? [];
    this.#phones = phones.filter(({ user }) => inIt.includes(user.user_id));
    for (const { client } of this.#phones) {
      client.on("conversation", ({ conversationId, lastSeq }) =>
        this.#arrivals.note(conversationId, lastSeq, performance.now()),
      );
    }

    this.#slider.addEventListener("input", () => {
      this.#moving = true;
      this.#draw();
    });
    this.#slider.addEventListener("change", () => void this.#resize());
    const button = (text: string, action: () => Promise<string | undefined>) => {
      const element = h("button", { class: "room-button", type: "button" }, text);
      element.addEventListener("click", () => void this.#run(action));
      return element;
    };
    this.#buttons = [
      button("Post", () => this.#measure(ROOM, this.#room)),
      button(`Post ${BURST}`, () => this.#sendMany()),
      button("Send to a group", () => {
        this.#tell("Delivering the message to each member…");
        return this.#measure(GROUP, this.#group);
      }),
    ];

    element
      .querySelector("h2")
      ?.after(
        h("p", { class: "room-count" }, this.#members, " members"),
        this.#slider,
        this.#status,
        h("div", { class: "room-buttons" }, ...this.#buttons),
        h(
          "table",
          { class: "cost" },
          h("caption", {}, "What a message costs"),
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              h("td"),
              h("th", { scope: "col" }, "Room", this.#room.members),
              h("th", { scope: "col" }, "Group", this.#group.members),
            ),
          ),
          h(
            "tbody",
            {},
            ...(["rows", "time"] as const).map((what) =>
              h(
                "tr",
                {},
                h("th", { scope: "row" }, what === "rows" ? "Rows written" : "Click to phone"),
                this.#room[what].element,
                this.#group[what].element,
              ),
            ),
          ),
        ),
      );
    element.removeAttribute("aria-busy");
    this.#draw();
  }

  /** Fetches the state of the room. */
  async sync(): Promise<void> {
    const state = await this.#server.crowd().catch(() => undefined);
    if (state !== undefined) this.show(state);
  }

  show(state: CrowdState): void {
    if (this.#lost) this.#told = undefined; // what failed meanwhile
    this.#lost = false;
    this.#state = state;
    // Until then states are older: the slider must not jump back under a finger.
    if (state.target === this.#asked) this.#asked = undefined;
    this.#draw();
  }

  /** Shows that the server cannot be reached. */
  showLost(): void {
    this.#lost = true;
    this.#moving = false;
    this.#draw();
  }

  #draw(): void {
    const state = this.#state;
    if (state !== undefined) {
      setText(this.#members, thousands(state.members));
      const target = this.#asked ?? state.target;
      if (!this.#moving) this.#slider.value = String(Math.round(placeOf(target)));
      const filled = placeOf(state.members) / (SIZES.length - 1);
      this.#slider.style.setProperty("--filled", filled.toFixed(4));
    }
    this.#slider.setAttribute("aria-valuetext", `${thousands(this.#wanted)} members`);
    // It stays enabled while the server is away, and so keeps the focus.
    if (state !== undefined) this.#slider.disabled = false;
    for (const button of this.#buttons) button.disabled = this.#lost || this.#sending;
    const trouble = this.#lost && state !== undefined ? UNREACHABLE : state?.trouble;
    this.#element.classList.toggle("is-troubled", trouble !== undefined);
    setText(this.#status, trouble ?? this.#describe());
  }

  /** The size that the slider shows. */
  get #wanted(): number {
    return sizeAt(this.#slider.valueAsNumber);
  }

  #describe(): string {
    if (this.#state === undefined) return "";
    const { members, target } = this.#state;
    if (this.#moving) return `Release for ${thousands(this.#wanted)} members`;
    if (members < target) return `${thousands(target - members)} guests are joining`;
    if (members > target) return `${thousands(members - target)} guests are leaving`;
    if (this.#told !== undefined) return this.#told;
    const names = this.#phones.map(({ user }) => user.name);
    return `${names.join(", ")} and ${thousands(members - names.length)} guests`;
  }

  async #resize(): Promise<void> {
    const members = this.#wanted;
    this.#moving = false;
    this.#asked = members;
    this.#told = undefined;
    try {
      const state = await this.#server.setMembers(members);
      // Else a later state has come already, or the slider has moved on.
      if (this.#asked === members) this.show(state);
    } catch {
      if (this.#asked === members) this.#asked = undefined;
      this.#tell("The demo did not take the new size. Move the slider again.");
    }
  }

  /** Runs the action of a button, one at a time, and shows the text that it returns. */
  async #run(action: () => Promise<string | undefined>): Promise<void> {
    this.#sending = true;
    this.#tell("Sending…");
    let text: string | undefined;
    try {
      text = await action();
    } catch {
      text = "Not sent, or not counted yet: the database does not answer. Try again.";
    }
    this.#sending = false;
    this.#tell(text);
  }

  #tell(text: string | undefined): void {
    this.#told = text;
    this.#draw();
  }

  /** Sends a message and shows what it cost. */
  async #measure(conversationId: string, column: Column): Promise<string | undefined> {
    const began = performance.now();
    const { seq, members, rows } = await this.#server.sendToAll(conversationId, 1);
    const arrived = await this.#arrival(conversationId, seq);
    column.show(members, rows, arrived === undefined ? undefined : arrived - began);
    return arrived === undefined ? this.#noPhone : undefined;
  }

  async #sendMany(): Promise<string> {
    const began = performance.now();
    const { seq } = await this.#server.sendToAll(ROOM, BURST);
    const arrived = await this.#arrival(ROOM, seq);
    if (arrived === undefined) return this.#noPhone;
    return `The last of ${BURST} messages was on a phone after ${duration(arrived - began)}`;
  }

  /** When a message was on one of the phones of the room; undefined if it does not come. */
  async #arrival(conversationId: string, seq: number): Promise<number | undefined> {
    const isOnline = this.#phones.some(({ client }) => client.status.state === "online");
    return isOnline ? this.#arrivals.of(conversationId, seq, PATIENCE_MS) : undefined;
  }

  get #noPhone(): string {
    const names = this.#phones.map(({ user }) => user.name);
    return `Sent, and no phone got it: take that of ${names.join(" or ")} online`;
  }
}

/** What a message cost, in a column of the table. */
class Column {
  /** The number of members when it was measured. */
  readonly members = h("span", { class: "cost-members" }, "not measured");
  readonly rows = new Cell();
  readonly time = new Cell();

  show(members: number, rows: number, ms: number | undefined): void {
    setText(this.members, `of ${thousands(members)}`);
    this.rows.show(thousands(rows), rows);
    if (ms === undefined) this.time.show("–", 0);
    else this.time.show(duration(ms), ms);
  }
}

/** A number with a bar on a logarithmic scale. */
class Cell {
  readonly #number = h("span", {}, "–");
  readonly element = h("td", {}, this.#number);

  show(text: string, size: number): void {
    setText(this.#number, text);
    this.element.style.setProperty("--share", share(size, MOST).toFixed(3));
  }
}
