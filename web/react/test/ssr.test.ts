import assert from "node:assert/strict";
import { test } from "node:test";
import { Badged } from "@badged/sdk";
import { createElement as h, StrictMode } from "react";
import { renderToString } from "react-dom/server";
import {
  Badge,
  BadgeProvider,
  useBadge,
  useBadgeClient,
  useConversation,
  useStatus,
} from "../src/index.js";

/** Fails the test if a client connects. */
class NoSocket {
  constructor() {
    throw new Error("a client connected on the server");
  }
}
const options = {
  url: "https://badges.test",
  user: "ada",
  token: async () => "token",
  WebSocket: NoSocket as never,
};

function Numbers() {
  const { total, mentions } = useBadge();
  const { state } = useStatus();
  const conversation = useConversation("a", { open: true });
  return h("p", {}, `${total} ${mentions} ${state} ${conversation}`);
}

test("a server renders zeros, and connects to nothing", () => {
  const page = h(StrictMode, {}, h(BadgeProvider, options, h(Numbers), h(Badge)));
  assert.equal(renderToString(page), "<p>0 0 stopped undefined</p>");
});

test("the client that is passed is the one that components get", () => {
  const client = new Badged(options);
  let got: Badged | undefined;
  const Probe = () => {
    got = useBadgeClient();
    return null;
  };
  renderToString(h(BadgeProvider, { client }, h(Probe)));
  assert.equal(got, client);
});

test("a component outside of a provider says what is missing", () => {
  assert.throws(() => renderToString(h(Badge)), /no BadgeProvider around/);
});
