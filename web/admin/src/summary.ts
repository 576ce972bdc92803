import { h, spoken } from "../../page/dom.js";
import { inTree, listed } from "./categories.js";
import { difference } from "./differences.js";
import { count, counted, when } from "./format.js";
import { idText } from "./ids.js";
import type { Explanation, Numbers } from "./server.js";
import { signed } from "./steps.js";

/** The badge by the log, which is the correct one, and whether the tables agree. */
export function summaryPanel(x: Explanation): HTMLElement {
  const facts = [
    ["Mentions", count(x.mentions)],
    ["Unseen", count(x.unseen)],
    ["Muted", count(x.muted?.total ?? 0)],
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
      h("span", {}, count(x.total)),
    ),
    h(
      "div",
      { class: "summary-who" },
      h("h2", {}, idText(x.user_id)),
      h("p", { class: "soft" }, x.at === undefined ? "now, by the log" : `as of ${when(x.at)}`),
      x.at === undefined && x.agrees ? h("p", { class: "good" }, "The tables match the log") : "",
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

/** The numbers in the tables that differ from the log, the conversations and rooms where
 * they do, and a button to heal them. */
export function disagreementPanel(x: Explanation, heal: () => void): HTMLElement {
  const button = h("button", { class: "button is-main", type: "button" }, "Heal from the log");
  button.addEventListener("click", heal);
  const { table } = x;
  const fields: [string, number, number][] = [];
  const compare = (of: string, log: Numbers | undefined, tables: Numbers | undefined) => {
    const there = listed(tables);
    for (const [i, [name, number]] of listed(log).entries()) {
      fields.push([`${of}${name}`, number, there[i]?.[1] ?? 0]);
    }
  };
  if (table) {
    compare("", x, table);
    fields.push(["version", x.version, table.version]);
    for (const path of inTree([...Object.keys(x.categories), ...Object.keys(table.categories)])) {
      compare(`category ${path}: `, x.categories[path], table.categories[path]);
    }
  }
  const wrong = fields.filter(([, log, tables]) => log !== tables);
  const parts = x.differences.filter((d) => d.conversation_id !== undefined);
  const inRoom = parts.some((d) => d.user_id === "");
  return h(
    "div",
    { class: "notice is-bad disagreement", role: "alert" },
    h(
      "div",
      {},
      h(
        "p",
        { class: "disagreement-title" },
        "The tables differ from the log. Apps show the numbers of the tables.",
      ),
      h(
        "ul",
        { class: "wrong" },
        ...wrong.map(([name, log, tables]) =>
          h(
            "li",
            {},
            h("span", { class: "wrong-name" }, name),
            h("strong", { class: "wrong-log" }, count(log)),
            h("span", { class: "wrong-tables" }, `the tables have ${count(tables)}, `),
            h("span", { class: "wrong-by" }, `${signed(tables - log)}`),
          ),
        ),
      ),
      parts.length > 0 ? h("ul", { class: "differences" }, ...parts.map(difference)) : "",
      x.more_differences > 0
        ? h("p", {}, `and ${counted(x.more_differences, "difference")} more`)
        : "",
      inRoom
        ? h("p", {}, `Healing the user leaves rooms as they are: rebuild partition ${x.partition}.`)
        : "",
    ),
    button,
  );
}
