import { h } from "../../page/dom.js";
import { AwayNotice, missingOf } from "./away.js";
import { confirm } from "./dialog.js";
import { onShard, when } from "./format.js";
import { KeyedList } from "./list.js";
import { payloadText } from "./payload.js";
import type { DeadLetter, Server } from "./server.js";
import type { Page, View } from "./view.js";

/** Events of the log that could not be decoded. */
export class DeadLetters implements View {
  readonly name = "dead-letters";
  readonly title = "Dead letters";
  readonly element: HTMLElement;
  readonly #list: KeyedList<DeadLetter>;
  readonly #away = new AwayNotice();
  readonly #page: Page;
  readonly #onCount: (n: number) => void;

  constructor(page: Page, onCount: (n: number) => void) {
    this.#page = page;
    this.#onCount = onCount;
    const letters = h("ul", { class: "cards", "aria-label": "Dead letters" });
    this.#list = new KeyedList(
      letters,
      ({ id }) => String(id),
      (letter) => this.#card(letter),
      h(
        "li",
        { class: "empty panel" },
        "There are no dead letters: every event in the log was decoded.",
      ),
    );
    this.element = h(
      "div",
      { class: "view" },
      h(
        "p",
        { class: "lead" },
        "Events that could not be decoded are set aside here, and folding continues. Retry them after an upgrade, or discard them.",
      ),
      this.#away.element,
      letters,
    );
  }

  async refresh(server: Server): Promise<void> {
    const { items: letters, away } = await server.deadLetters();
    this.#away.show(missingOf(away, "dead letters are missing here."));
    this.#list.update(letters);
    this.#onCount(letters.length);
  }

  #card(letter: DeadLetter): HTMLElement {
    const { id, reason, at } = letter;
    const where = `${onShard(letter)}${letter.origin ?? `partition ${letter.partition} · ${letter.position}`}`;
    const retry = h(
      "button",
      { class: "button", type: "button", "aria-label": `Retry dead letter ${id}` },
      "Retry",
    );
    const discard = h(
      "button",
      { class: "button is-danger", type: "button", "aria-label": `Discard dead letter ${id}` },
      "Discard",
    );
    retry.addEventListener("click", () =>
      this.#page.act(
        () => this.#page.server.retryDeadLetter(id),
        `Dead letter ${id} is in the log again`,
      ),
    );
    discard.addEventListener("click", async () => {
      const text = `This cannot be undone. The audit trail keeps the dead letter: ${reason}`;
      if (!(await confirm(`Discard dead letter ${id}?`, text, "Discard", "Keep it"))) return;
      await this.#page.act(
        () => this.#page.server.discardDeadLetter(id),
        `Dead letter ${id} is discarded`,
      );
    });
    return h(
      "li",
      { class: "card panel" },
      h(
        "div",
        { class: "card-head" },
        h("h3", {}, `#${id}`),
        h("span", { class: "mono soft" }, where),
        h("time", { class: "soft", datetime: at }, when(at)),
        h("div", { class: "card-buttons" }, retry, discard),
      ),
      h("p", { class: "reason" }, reason),
      h(
        "details",
        {},
        h("summary", {}, "Payload"),
        h("pre", { class: "mono", tabindex: "0" }, payloadText(letter)),
      ),
    );
  }
}
