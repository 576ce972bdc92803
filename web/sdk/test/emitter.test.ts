import assert from "node:assert/strict";
import { test } from "node:test";
import { Emitter } from "../src/emitter.js";
import { settled } from "./fakes.js";

interface Events {
  count: number;
}

test("listeners are called in order until they are removed", () => {
  const emitter = new Emitter<Events>();
  const heard: string[] = [];
  const off = emitter.on("count", (n) => heard.push(`a${n}`));
  emitter.on("count", (n) => heard.push(`b${n}`));
  emitter.emit("count", 1);
  off();
  emitter.emit("count", 2);
  assert.deepEqual(heard, ["a1", "b1", "b2"]);
});

test("a function added twice is called twice, and each is removed on its own", () => {
  const emitter = new Emitter<Events>();
  const heard: number[] = [];
  const listen = (n: number) => heard.push(n);
  const off = emitter.on("count", listen);
  emitter.on("count", listen);
  emitter.emit("count", 1);
  off();
  off();
  emitter.emit("count", 2);
  assert.deepEqual(heard, [1, 1, 2]);
});

test("a listener added by another is called from the next event on", () => {
  const emitter = new Emitter<Events>();
  const heard: number[] = [];
  emitter.on("count", (n) => {
    if (n === 1) emitter.on("count", (later) => heard.push(later));
  });
  emitter.emit("count", 1);
  emitter.emit("count", 2);
  assert.deepEqual(heard, [2]);
});

test("a listener that throws does not stop the others, and its error is reported", async () => {
  const emitter = new Emitter<Events>();
  const heard: number[] = [];
  emitter.on("count", () => {
    throw new Error("fault of the app");
  });
  emitter.on("count", (n) => heard.push(n));

  const uncaught = new Promise<Error>((resolve) => {
    process.setUncaughtExceptionCaptureCallback(resolve);
  });
  emitter.emit("count", 1);
  await settled();
  process.setUncaughtExceptionCaptureCallback(null);

  assert.deepEqual(heard, [1]);
  assert.equal((await uncaught).message, "fault of the app");
});
