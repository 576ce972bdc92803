import { createElement as h } from "react";
import { hydrateRoot } from "react-dom/client";
import { App } from "./react.mjs";

const { url, token } = globalThis.given;
hydrateRoot(document.querySelector("#root"), h(App, { url, token }));
