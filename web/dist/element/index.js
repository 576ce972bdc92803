// dist/element/src/index.ts
import {
  countOf,
  formatCount,
  onCount
} from "@badged/sdk";
var Base = globalThis.HTMLElement ?? class {
};
var shared;
var attached = /* @__PURE__ */ new Set();
var COUNTS = ["conversations", "mentions", "unseen", "muted", "marked"];
var BadgedCount = class extends Base {
  static observedAttributes = [
    "category",
    "conversation",
    "count",
    "most",
    "label",
    "open"
  ];
  #client;
  #end = () => {
  };
  #opened;
  /** The client; default that of {@link defineBadgedCount}. */
  get client() {
    return this.#client ?? shared;
  }
  set client(client) {
    this.#client = client;
    this.follow();
  }
  connectedCallback() {
    if (Object.hasOwn(this, "client")) {
      const { client } = this;
      delete this.client;
      this.#client = client;
    }
    attached.add(this);
    this.follow();
  }
  disconnectedCallback() {
    attached.delete(this);
    this.follow();
  }
  attributeChangedCallback() {
    this.follow();
  }
  /** Follows the client that it has now. @internal */
  follow() {
    this.#end();
    this.#end = () => {
    };
    this.#opened?.close();
    this.#opened = void 0;
    if (!this.isConnected) return;
    const { client } = this;
    const part = {
      category: this.getAttribute("category") ?? void 0,
      conversation: this.getAttribute("conversation") ?? void 0,
      count: COUNTS.find((count) => count === this.getAttribute("count"))
    };
    if (this.hasAttribute("open")) this.#opened = client?.openCategory(part.category);
    if (client !== void 0) this.#end = onCount(client, part, () => this.#show(client, part));
    this.#show(client, part);
  }
  #show(client, part) {
    const count = client === void 0 ? 0 : countOf(client, part);
    const most = Number(this.getAttribute("most") ?? 99);
    this.hidden = count <= 0;
    this.textContent = formatCount(count, most);
    this.setAttribute("role", "img");
    const label = this.getAttribute("label") ?? "{count} unread";
    this.setAttribute("aria-label", label.replace("{count}", String(count)));
  }
};
function defineBadgedCount(client) {
  if (!globalThis.customElements) return;
  shared = client;
  if (!customElements.get("badged-count")) customElements.define("badged-count", BadgedCount);
  for (const element of attached) element.follow();
}
export {
  BadgedCount,
  defineBadgedCount
};
//# sourceMappingURL=index.js.map
