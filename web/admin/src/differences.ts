import { h } from "../../page/dom.js";
import { idText } from "./ids.js";
import { userPlace } from "./place.js";
import type { Difference } from "./server.js";

/** A difference: the value by the log, the one in the table, and a link to the user. */
export function difference(d: Difference): HTMLElement {
  return h(
    "li",
    { class: "difference" },
    ...placeOf(d),
    `: ${d.field} is `,
    h("strong", {}, d.log || "empty"),
    " by the log, ",
    h("span", { class: "soft" }, `the table has ${d.table || "nothing"}`),
  );
}

/** Where a difference is: at a user, in a conversation of one, or in a room. */
function placeOf({ user_id: user, conversation_id: conversation }: Difference): (Node | string)[] {
  const named = conversation === undefined ? [] : [idText(conversation)];
  if (user === "") return ["room ", ...named];
  const href = userPlace(user, conversation === undefined ? {} : { conversation });
  const link = h("a", { href }, idText(user));
  return conversation === undefined ? [link] : [link, ", conversation ", ...named];
}
