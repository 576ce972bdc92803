import assert from "node:assert/strict";
import { test } from "node:test";
import type { Badged } from "@badged/sdk";
import { createSSRApp, defineComponent, h } from "vue";
import { renderToString } from "vue/server-renderer";
import {
  Badge,
  createBadges,
  useBadge,
  useCategories,
  useConversation,
  useNumbers,
  useStatus,
} from "../src/index.js";

/** Fails the test if a client connects. */
class NoSocket {
  constructor() {
    throw new Error("a client connected on the server");
  }
}

const Numbers = defineComponent(() => {
  const badge = useBadge();
  const status = useStatus();
  const conversation = useConversation("a", { open: true });
  const numbers = useNumbers("acme", { open: true });
  const categories = useCategories();
  const counted = () =>
    `${numbers.value.unseen} ${numbers.value.muted.total} ${categories.value.length}`;
  return () =>
    h("p", `${badge.value.total} ${counted()} ${status.value.state} ${conversation.value}`);
});

test("a server renders zeros, and connects to nothing", async () => {
  const app = createSSRApp({ render: () => [h(Numbers), h(Badge)] });
  app.use(
    createBadges({
      url: "https://badges.test",
      user: "ada",
      token: async () => "token",
      WebSocket: NoSocket as never,
    }),
  );
  assert.match(await renderToString(app), /<p>0 0 0 0 stopped undefined<\/p>/);
});

test("a client that is passed is used, also one of another copy of the SDK", () => {
  const client = { conversations: new Map() } as unknown as Badged;
  assert.equal(createBadges(client).client, client);
});

test("a component without the plugin says what is missing", async () => {
  const app = createSSRApp(Badge);
  app.config.warnHandler = () => {};
  await assert.rejects(async () => renderToString(app), /no plugin: call app\.use/);
});
