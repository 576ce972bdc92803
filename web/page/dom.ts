/** Makes an element: attributes (false and undefined ones are left out), then children. */
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

/** Text that only screen readers give out. */
export function spoken(text = ""): HTMLSpanElement {
  return h("span", { class: "spoken" }, text);
}

/** Sets the text of an element, touching the page only where it differs. */
export function setText(element: Element, text: string): void {
  if (element.textContent !== text) element.textContent = text;
}

/** The element of the page that a selector names. */
export function find<Kind extends Element = HTMLElement>(selector: string): Kind {
  const element = document.querySelector<Kind>(selector);
  if (element === null) throw new Error(`the page has no ${selector}`);
  return element;
}

/**
 * Wraps a function so that any number of calls run it once, before the next
 * frame is painted.
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

/** Animates an element, unless the user prefers stillness. */
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

/** A time of day, in as few letters as phones give it. */
export function clock(date: Date): string {
  return time.format(date);
}

/** A time of day to the second, as the user writes it. */
export function clockToTheSecond(date: Date): string {
  return timeWithSeconds.format(date);
}

/** `1 mention`, `3 mentions`. */
export function plural(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? "" : "s"}`;
}
