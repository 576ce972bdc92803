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
  const { unseen, muted } = useNumbers("acme", { open: true });
  const counted = [total, mentions, unseen, muted.total, useCategories().length].join(" ");
  return h("p", {}, `${counted} ${state} ${conversation}`);
}

test("a server renders zeros, and connects to nothing", () => {
  const page = h(StrictMode, {}, h(BadgeProvider, options, h(Numbers), h(Badge)));
  assert.equal(renderToString(page), "<p>0 0 0 0 0 stopped undefined</p>");
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
