import type { Part } from "@badged/sdk";
import { plural, setText } from "../../page/dom.js";

/** What the badges on the page count. */
export type Count = NonNullable<Part["count"]>;

/** The button that makes all badges count conversations instead of messages. */
export class CountButton {
  constructor(button: HTMLButtonElement, onChange: (count: Count) => void) {
    const text = button.querySelector("span");
    let count: Count = "messages";
    button.addEventListener("click", () => {
      const before = count;
      count = before === "messages" ? "conversations" : "messages";
      if (text !== null) setText(text, `Count ${before}`);
      onChange(count);
    });
  }
}

/** A count in words: `5 unread`, or `2 conversations unread`. */
export function unread(count: number, kind: Count): string {
  return kind === "messages" ? `${count} unread` : `${plural(count, "conversation")} unread`;
}
