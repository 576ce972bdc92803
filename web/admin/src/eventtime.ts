import { h } from "../../page/dom.js";
import { when } from "./format.js";
import type { LoggedEvent } from "./server.js";

/** When an event was folded, and so could be seen; and when appended, where that is another second. */
export function foldedTime(event: LoggedEvent): Node[] {
  const folded = when(event.folded_at);
  const appended = when(event.appended_at);
  const parts: Node[] = [document.createTextNode(folded)];
  if (appended !== folded) parts.push(h("span", { class: "soft" }, ` (appended ${appended})`));
  return parts;
}
