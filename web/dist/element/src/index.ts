/**
 * The custom element `<badged-count>`: the live unread badge of one user.
 *
 * @packageDocumentation
 */
import {
  type Badged,
  countOf,
  formatCount,
  type OpenCategory,
  onCount,
  type Part,
} from "@badged/sdk";

// Servers render the element as an unknown one: they only need to load this module.
const Base = globalThis.HTMLElement ?? (class {} as typeof HTMLElement);

/** The client of the elements that have none of their own. */
let shared: Badged | undefined;
const attached = new Set<BadgedCount>();

const COUNTS = ["conversations", "mentions", "unseen", "muted", "marked"] as const;

/**
 * Shows a count, and is hidden at 0. Attributes: `category`, with those below it, or
 * `conversation` limits what it counts. With `count` it counts instead of messages
 * `conversations`, `mentions`, what is `unseen`, `muted` or `marked`. While it has the
 * attribute `open`, a list of the category, or of everything, is on the screen: what
 * arrives is seen. `most` (default 99) is the largest count shown as it is, and in
 * `label` (default `{count} unread`) is what screen readers say.
 */
export class BadgedCount extends Base {
  static readonly observedAttributes = [
    "category",
    "conversation",
    "count",
    "most",
    "label",
    "open",
  ];
  #client: Badged | undefined;
  #end = () => {};
  #opened: OpenCategory | undefined;

  /** The client; default that of {@link defineBadgedCount}. */
  get client(): Badged | undefined {
    return this.#client ?? shared;
  }

  set client(client: Badged | undefined) {
    this.#client = client;
    this.follow();
  }

  connectedCallback(): void {
    // A client that was set before the element was defined hides the accessor.
    if (Object.hasOwn(this, "client")) {
      const { client } = this;
      delete (this as Partial<this>).client;
      this.#client = client;
    }
    attached.add(this);
    this.follow();
  }

  disconnectedCallback(): void {
    attached.delete(this);
    this.follow();
  }

  attributeChangedCallback(): void {
    this.follow();
  }

  /** Follows the client that it has now. @internal */
  follow(): void {
    this.#end();
    this.#end = () => {};
    this.#opened?.close();
    this.#opened = undefined;
    if (!this.isConnected) return;
    const { client } = this;
    const part: Part = {
      category: this.getAttribute("category") ?? undefined,
      conversation: this.getAttribute("conversation") ?? undefined,
      count: COUNTS.find((count) => count === this.getAttribute("count")),
    };
    if (this.hasAttribute("open")) this.#opened = client?.openCategory(part.category);
    if (client !== undefined) this.#end = onCount(client, part, () => this.#show(client, part));
    this.#show(client, part);
  }

  #show(client: Badged | undefined, part: Part): void {
    const count = client === undefined ? 0 : countOf(client, part);
    const most = Number(this.getAttribute("most") ?? 99);
    this.hidden = count <= 0;
    this.textContent = formatCount(count, most);
    this.setAttribute("role", "img");
    const label = this.getAttribute("label") ?? "{count} unread";
    this.setAttribute("aria-label", label.replace("{count}", String(count)));
  }
}

/**
 * Defines `<badged-count>`, and gives its elements a client. Call it again with
 * another client after the user has changed. It does nothing on a server.
 */
export function defineBadgedCount(client?: Badged): void {
  if (!globalThis.customElements) return;
  shared = client;
  if (!customElements.get("badged-count")) customElements.define("badged-count", BadgedCount);
  for (const element of attached) element.follow();
}

declare global {
  interface HTMLElementTagNameMap {
    "badged-count": BadgedCount;
  }
}
