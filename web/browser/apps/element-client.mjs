import { defineBadgedCount } from "@badged/element";
import { Badged } from "@badged/sdk";

const { url, token } = globalThis.given;
globalThis.client = new Badged({ url, token: async () => token });
globalThis.defineBadgedCount = defineBadgedCount;
defineBadgedCount(globalThis.client);
globalThis.client.start();
