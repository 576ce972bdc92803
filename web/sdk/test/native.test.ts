import assert from "node:assert/strict";
import { test } from "node:test";
import vm from "node:vm";
import { buildSync } from "esbuild";
import type * as SDK from "../src/index.js";
import {
  conversation,
  FakeAsyncStorage,
  FakeClock,
  FakeSocket,
  FakeStorage,
  settled,
  snapshot,
} from "./fakes.js";

/** The SDK, run with the globals of React Native alone. */
function load(sockets: FakeSocket[]): typeof SDK {
  const globals: Record<string, unknown> = {
    navigator: { product: "ReactNative" },
    WebSocket: class extends FakeSocket {
      constructor(url: string, protocols: string[]) {
        super(url, protocols);
        sockets.push(this);
      }
    },
    // Its responses have no body that can be read as a stream.
    fetch: () => assert.fail("event streams do not work"),
    URL: class {
      constructor() {
        throw new Error("URL is not implemented");
      }
    },
    AbortController,
    performance: { now: () => 0 },
    queueMicrotask,
    setTimeout: () => assert.fail("the test has its own clock"),
    clearTimeout() {},
  };
  globals.window = globals.self = globals.global = globals;
  const { outputFiles } = buildSync({
    entryPoints: ["sdk/src/index.ts"],
    bundle: true,
    format: "iife",
    globalName: "badged",
    write: false,
  });
  return vm.runInNewContext(`${outputFiles[0]?.text}; badged`, globals);
}

/** React Native's AppState, moved by the test. */
class FakeAppState {
  currentState = "active";
  readonly listeners = new Set<(state: string) => void>();

  addEventListener(_: "change", listener: (state: string) => void) {
    this.listeners.add(listener);
    return { remove: () => this.listeners.delete(listener) };
  }

  become(state: string): void {
    this.currentState = state;
    for (const listener of this.listeners) listener(state);
  }
}

test("the client runs in React Native, and reads while the app is active", async () => {
  const sockets: FakeSocket[] = [];
  const { Badged, appStatePage } = load(sockets);
  const appState = new FakeAppState();
  const storage = new FakeStorage();
  const clock = new FakeClock();
  const options = {
    url: "https://badges.test/base",
    user: "ada",
    token: async () => "token",
    page: appStatePage(appState),
    storage,
    clock,
  };
  const client = new Badged(options);
  client.start();
  await settled();
  const [socket] = sockets;
  assert(socket);
  assert.equal(socket.url, "wss://badges.test/base/v1/ws");
  socket.accept();
  socket.serve(snapshot(3, [conversation("a", 2, 3)]));
  assert.equal(client.badge?.total, 2);
  assert.equal(clock.delays.includes(3_000), false, "it does not try event streams");

  appState.become("inactive");
  assert.equal(storage.writes, 1, "the state is stored when the user leaves");
  const open = client.open("a");
  await clock.advance(250);
  assert.deepEqual(socket.commands(), []);
  appState.become("active");
  await clock.advance(250);
  assert.deepEqual(socket.commands(), ["read a 2"]);
  assert.equal(client.badge?.total, 0);

  open.close();
  client.stop();
  assert.equal(appState.listeners.size, 0);
  assert.equal(new Badged(options).badge?.total, 0, "the next start shows the last numbers");
});

/** A client with a storage, in React Native. */
function withStorage(storage: FakeAsyncStorage) {
  const sockets: FakeSocket[] = [];
  const { Badged } = load(sockets);
  const clock = new FakeClock();
  const make = () =>
    new Badged({
      url: "https://badges.test",
      user: "ada",
      token: async () => "token",
      page: null,
      storage,
      clock,
    });
  return { sockets, clock, make };
}

test("a client reads an asynchronous storage before it connects", async () => {
  const storage = new FakeAsyncStorage();
  const first = withStorage(storage);
  const client = first.make();
  client.start();
  assert.equal(client.status.state, "connecting");
  await settled();
  assert.equal(first.sockets.length, 0, "not before the storage was read");
  await storage.proceed();
  const [socket] = first.sockets;
  assert(socket);
  socket.accept();
  socket.serve(snapshot(3, [conversation("a", 2, 3), conversation("b", 1, 5)]));
  void client.read("a", 2);
  void client.read("b", 5);
  void client.read("a", 3);
  client.stop();
  await storage.proceed();

  const second = withStorage(storage);
  const later = second.make();
  const totals: number[] = [];
  later.on("total", ({ total }) => totals.push(total));
  later.start();
  void later.markUnread("a");
  await storage.proceed();
  assert.deepEqual(totals, [1], "what the last visit read and what this one marks");
  const [again] = second.sockets;
  assert(again);
  again.accept();
  assert.deepEqual(JSON.parse(again.sent[0] ?? ""), { t: "hello", epoch: "e1", version: 3 });
});

test("stopping or forgetting while the storage is read", async () => {
  const storage = new FakeAsyncStorage();
  const one = withStorage(storage);
  const client = one.make();
  client.start();
  client.stop();
  client.start();
  client.stop();
  await storage.proceed();
  assert.equal(client.status.state, "stopped");
  assert.equal(one.sockets.length, 0);
  client.start();
  assert.equal(client.status.state, "connecting");
  await settled();
  assert.equal(one.sockets.length, 1);
  client.stop();

  storage.items.set("badged https://badges.test/ ada state", "what another user had");
  const leaving = one.make();
  leaving.forget();
  await storage.proceed();
  assert.deepEqual([...storage.items], []);
});

test("a client works with an asynchronous storage that fails", async () => {
  const storage = new FakeAsyncStorage();
  storage.broken = true;
  const { sockets, make } = withStorage(storage);
  const client = make();
  client.start();
  await storage.proceed();
  const [socket] = sockets;
  assert(socket);
  socket.accept();
  socket.serve(snapshot(3, [conversation("a", 2, 3)]));
  void client.read("a", 3);
  client.stop();
  await storage.proceed();
  assert.equal(client.badge?.total, 0);
});
