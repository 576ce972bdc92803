import { h } from "../../page/dom.js";

/** Most similar rows that are shown one by one. */
const SHOWN_ALIKE = 3;

/** Similar rows of a table. */
export interface Group<Item> {
  readonly items: readonly Item[];
}

/** Groups adjacent items with the same key. */
export function runs<Item>(items: readonly Item[], keyOf: (item: Item) => string): Group<Item>[] {
  const groups: { key: string; items: Item[] }[] = [];
  for (const item of items) {
    const key = keyOf(item);
    const last = groups.at(-1);
    if (last?.key === key) last.items.push(item);
    else groups.push({ key, items: [item] });
  }
  return groups;
}

/** Groups items with the same key, in the order of the first of each. */
export function kinds<Item>(items: readonly Item[], keyOf: (item: Item) => string): Group<Item>[] {
  const groups = new Map<string, Item[]>();
  for (const item of items) {
    const key = keyOf(item);
    groups.set(key, [...(groups.get(key) ?? []), item]);
  }
  return [...groups.values()].map((all) => ({ items: all }));
}

/**
 * Renders the rows of groups. A large group is folded behind a row with a button;
 * `summary` returns the button's text and the other cells of that row.
 */
export function foldedRows<Item>(
  groups: readonly Group<Item>[],
  row: (item: Item) => HTMLTableRowElement,
  summary: (group: Group<Item>) => { text: string; cells: HTMLElement[] } | undefined,
): HTMLTableRowElement[] {
  return groups.flatMap((group) => {
    const rows = group.items.map(row);
    const told = rows.length > SHOWN_ALIKE ? summary(group) : undefined;
    if (told === undefined) return rows;
    const button = h(
      "button",
      { class: "unfold", type: "button", "aria-expanded": "false" },
      told.text,
    );
    button.addEventListener("click", () => {
      const open = button.getAttribute("aria-expanded") !== "true";
      button.setAttribute("aria-expanded", String(open));
      for (const each of rows) each.hidden = !open;
    });
    for (const each of rows) {
      each.hidden = true;
      each.classList.add("is-folded");
    }
    return [h("tr", {}, h("td", { class: "nowrap" }, button), ...told.cells), ...rows];
  });
}
