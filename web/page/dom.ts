/** Creates an element with attributes, except false and undefined ones, and children. */
export function h<Tag extends keyof HTMLElementTagNameMap>(
  tag: Tag,
  attributes: Record<string, string | boolean | undefined> = {},
  ...children: (Node | string)[]
): HTMLElementTagNameMap[Tag] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === false) continue;
    element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children);
  return element;
}

/** Text for screen readers only. */
export function spoken(text = ""): HTMLSpanElement {
  return h("span", { class: "spoken" }, text);
}

/** Sets the text of an element. Does not touch the page if it is the same. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** Returns the first element that matches a selector, or throws. */
export function find<Kind extends Element = HTMLElement>(selector: string): Kind {
  const element = document.querySelector<Kind>(selector);
  if (element === null) throw new Error(`no element matches ${selector}`);
  return element;
}

/**
 * Wraps a function so that any number of calls run it once, before the next
 * paint.
 */
export function oncePerFrame(call: () => void): () => void {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      call();
    });
  };
}

/** Animates an element, unless the user prefers reduced motion. */
export function animate(
  element: Element,
  keyframes: Keyframe[],
  durationMs: number,
): Animation | undefined {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return undefined;
  return element.animate(keyframes, {
    duration: durationMs,
    easing: "cubic-bezier(0.2, 0.8, 0.2, 1)",
  });
}

const time = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  hourCycle: "h23",
});
const timeWithSeconds = new Intl.DateTimeFormat(undefined, { timeStyle: "medium" });

/** Formats a time of day as hours and minutes. */
export function clock(date: Date): string {
  return time.format(date);
}

/** Formats a time of day to the second, in the user's locale. */
export function clockToTheSecond(date: Date): string {
  return timeWithSeconds.format(date);
}

/** `1 mention`, `3 mentions`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
