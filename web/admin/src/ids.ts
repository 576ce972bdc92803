import { h } from "../../page/dom.js";

/** Splits an id at its invisible spaces: those at the ends, and all but the first in a row. */
export function partsOfId(id: string): { text: string; space: boolean }[] {
  return id
    .split(/(^\s+|\s+$|(?<=\s)\s+)/u)
    .filter((text) => text !== "")
    .map((text) => ({ text, space: /^\s+$/u.test(text) }));
}

/** Renders an id with its spaces visible. They stay part of the copied text. */
export function idText(id: string): HTMLElement {
  return h(
    "bdi",
    { class: "id", title: spacesIn(id) || undefined },
    ...partsOfId(id).map(({ text, space }) => (space ? h("span", { class: "space" }, text) : text)),
  );
}

/** Describes spaces at the ends of an id: `Begins and ends with a space`. */
export function spacesIn(id: string): string {
  const begins = /^\s/u.test(id);
  const ends = /\s$/u.test(id);
  if (begins && ends) return "Begins and ends with a space";
  if (begins) return "Begins with a space";
  return ends ? "Ends with a space" : "";
}
