import { h } from "../../page/dom.js";
import { foldedTime } from "./eventtime.js";
import { count } from "./format.js";
import { idText } from "./ids.js";
import type { Explanation, Numbers } from "./server.js";

/** The numbers in their order on the page, by name. */
export function listed(n: Numbers | undefined): [string, number][] {
  return [
    ["total", n?.total ?? 0],
    ["mentions", n?.mentions ?? 0],
    ["unread conversations", n?.unread_conversations ?? 0],
    ["unseen", n?.unseen ?? 0],
    ["muted", n?.muted?.total ?? 0],
    ["muted conversations", n?.muted?.conversations ?? 0],
    ["marked", n?.marked ?? 0],
  ];
}

/** Paths in the order of a tree: each follows the one above it. */
export function inTree(paths: Iterable<string>): string[] {
  // A slash sorts before every character that a part can have.
  const key = (path: string) => path.replaceAll("/", "\u0000");
  return [...new Set(paths)].sort((a, b) => (key(a) < key(b) ? -1 : 1));
}

/** The categories with anything to show, or with a level, as a tree. */
export function categoriesPanel(x: Explanation): HTMLElement {
  const levels = x.table?.levels ?? {};
  const paths = inTree([...Object.keys(x.categories), ...Object.keys(x.levels ?? {})]);
  const rows = paths.map((path) => {
    const n = x.categories[path];
    const by = x.levels?.[path];
    const parts = path.split("/");
    const name = h("th", { scope: "row", class: "wide" }, idText(parts.at(-1) ?? ""));
    name.title = path;
    name.style.paddingInlineStart = `${parts.length * 1.2}rem`;
    return h(
      "tr",
      {},
      name,
      ...[n?.total, n?.muted?.total, n?.unseen].map((number) =>
        h("td", { class: "number" }, count(number ?? 0)),
      ),
      h(
        "td",
        { class: "nowrap" },
        levels[path] ?? (by ? "set" : ""),
        ...(by ? [" by ", idText(by.event_id), ", ", ...foldedTime(by)] : []),
      ),
    );
  });
  const heads = ["Category", "Total", "Muted", "Unseen", "Level"];
  return h(
    "section",
    { class: "panel scroll", tabindex: "0", "aria-label": "Categories" },
    h(
      "table",
      { class: "table" },
      h("thead", {}, h("tr", {}, ...heads.map((text) => h("th", { scope: "col" }, text)))),
      h("tbody", {}, ...rows),
    ),
  );
}
