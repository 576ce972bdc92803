"use strict";
var __defProp = Object.defineProperty;
var __getOwnPropDesc = Object.getOwnPropertyDescriptor;
var __getOwnPropNames = Object.getOwnPropertyNames;
var __hasOwnProp = Object.prototype.hasOwnProperty;
var __export = (target, all) => {
  for (var name in all)
    __defProp(target, name, { get: all[name], enumerable: true });
};
var __copyProps = (to, from, except, desc) => {
  if (from && typeof from === "object" || typeof from === "function") {
    for (let key of __getOwnPropNames(from))
      if (!__hasOwnProp.call(to, key) && key !== except)
        __defProp(to, key, { get: () => from[key], enumerable: !(desc = __getOwnPropDesc(from, key)) || desc.enumerable });
  }
  return to;
};
var __toCommonJS = (mod) => __copyProps(__defProp({}, "__esModule", { value: true }), mod);

// dist/element/src/index.ts
var index_exports = {};
__export(index_exports, {
  BadgedCount: () => BadgedCount,
  defineBadgedCount: () => defineBadgedCount
});
module.exports = __toCommonJS(index_exports);
var import_sdk = require("@badged/sdk");
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
    if (client !== void 0) this.#end = (0, import_sdk.onCount)(client, part, () => this.#show(client, part));
    this.#show(client, part);
  }
  #show(client, part) {
    const count = client === void 0 ? 0 : (0, import_sdk.countOf)(client, part);
    const most = Number(this.getAttribute("most") ?? 99);
    this.hidden = count <= 0;
    this.textContent = (0, import_sdk.formatCount)(count, most);
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
//# sourceMappingURL=index.js.map
