/**
 * Syncs the children of an element with a list of items. It redraws only changed items, so
 * that open details and the focus stay.
 */
export class KeyedList<Item> {
  readonly #container: Element;
  readonly #key: (item: Item) => string;
  readonly #draw: (item: Item) => Element;
  readonly #drawn = new Map<string, { element: Element; of: string }>();
  readonly #empty: Element | undefined;

  constructor(
    container: Element,
    key: (item: Item) => string,
    draw: (item: Item) => Element,
    empty?: Element,
  ) {
    this.#container = container;
    this.#key = key;
    this.#draw = draw;
    this.#empty = empty;
  }

  update(items: readonly Item[]): void {
    const keys = new Set(items.map(this.#key));
    for (const [key, { element }] of this.#drawn) {
      if (keys.has(key)) continue;
      element.remove();
      this.#drawn.delete(key);
    }
    // Draw all before placing any: drawing replaces the previous element.
    const elements = items.map((item) => this.#element(item));
    let place: Element | null = this.#container.firstElementChild;
    for (const element of elements) {
      if (element === place) {
        place = place.nextElementSibling;
      } else {
        this.#container.insertBefore(element, place);
      }
    }
    if (this.#empty === undefined) return;
    if (items.length === 0) this.#container.append(this.#empty);
    else this.#empty.remove();
  }

  #element(item: Item): Element {
    const key = this.#key(item);
    const of = JSON.stringify(item);
    const drawn = this.#drawn.get(key);
    if (drawn?.of === of) return drawn.element;
    const element = this.#draw(item);
    const open = drawn?.element.querySelector("details")?.open;
    const details = element.querySelector("details");
    if (open && details) details.open = true;
    const focused = drawn?.element.contains(document.activeElement);
    drawn?.element.replaceWith(element);
    if (focused) element.querySelector<HTMLElement>("button, summary")?.focus();
    this.#drawn.set(key, { element, of });
    return element;
  }
}
