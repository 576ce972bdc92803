import { formatCount } from "@badged/sdk";
import { h, setText, spoken } from "../../page/dom.js";
import { unread } from "./count.js";
import type { Phone } from "./phone.js";

/** On narrow screens, the badges of all users, with links to their phones. */
export class People {
  readonly #badges = new Map<Phone, { badge: HTMLElement; said: HTMLElement }>();

  constructor(bar: HTMLElement, phones: readonly Phone[]) {
    const buttons = phones.map((phone) => {
      const badge = h("span", { class: "badge", "aria-hidden": "true", hidden: true });
      const said = spoken();
      this.#badges.set(phone, { badge, said });
      const face = h(
        "span",
        { class: "avatar is-direct", "aria-hidden": "true" },
        phone.user.name.slice(0, 1),
        badge,
      );
      face.style.setProperty("--user", phone.user.color);
      const button = h(
        "button",
        { class: "person", type: "button" },
        face,
        h("span", { class: "person-name" }, phone.user.name),
        said,
      );
      button.addEventListener("click", () =>
        phone.element.scrollIntoView({ inline: "center", block: "nearest" }),
      );
      return button;
    });
    bar.replaceChildren(...buttons);
  }

  update(): void {
    for (const [{ total: count, closed, count: kind }, { badge, said }] of this.#badges) {
      badge.hidden = count === 0;
      setText(badge, formatCount(count));
      setText(said, `, ${unread(count, closed ? "messages" : kind)}`);
    }
  }
}
