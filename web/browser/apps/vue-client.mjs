import { createApp } from "./vue.mjs";

globalThis.app = createApp(globalThis.given);
globalThis.app.mount("#root");
