import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { isNewer, type PushEventLike, showPushes, type WorkerLike } from "../src/worker.js";

/** A service worker whose icon and notifications the test sees. */
class FakeWorker implements WorkerLike {
  readonly did: unknown[] = [];
  navigator: WorkerLike["navigator"] = {
    setAppBadge: async (number) => void this.did.push(["set", number]),
    clearAppBadge: async () => void this.did.push(["clear"]),
  };
  readonly registration = {
    showNotification: async (title: string, options: NotificationOptions) => {
      if (this.denied) throw new TypeError("no permission");
      this.did.push(["show", title, options]);
    },
    getNotifications: async ({ tag }: { tag: string }) => [
      { close: () => void this.did.push(["close", tag]) },
    ],
  };
  denied = false;
  readonly entries = new Map<string, string>();
  caches: WorkerLike["caches"] = {
    open: async () =>
      ({
        match: async (key: string) =>
          this.entries.has(key) ? new Response(this.entries.get(key)) : undefined,
        put: async (key: string, value: Response) => {
          this.entries.set(key, await value.text());
        },
      }) as unknown as Cache,
  };
  #listener = (_: PushEventLike) => {};

  addEventListener(type: "push", listener: (event: PushEventLike) => void): void {
    assert.equal(type, "push");
    this.#listener = listener;
  }

  /** Delivers a push, and resolves once the browser may end the worker. */
  async push(content: unknown): Promise<void> {
    let done: Promise<unknown> = Promise.resolve();
    const text = typeof content === "string" ? content : JSON.stringify(content);
    this.#listener({
      data: content === null ? null : { text: () => text },
      waitUntil: (promise) => {
        done = promise;
      },
    });
    await done;
  }

  /** What was done since the last call. */
  take(): unknown[] {
    return this.did.splice(0);
  }
}

function start(change: (worker: FakeWorker) => void = () => {}): FakeWorker {
  const worker = new FakeWorker();
  change(worker);
  showPushes(worker);
  return worker;
}

const alert = {
  badged: {
    epoch: "e",
    version: 2,
    number: 3,
    conversation_id: "lunch",
    seq: 42,
    data: { url: "/" },
  },
  title: "Ben",
  body: "Pizza?",
};
const notification = ["show", "Ben", { body: "Pizza?", tag: "lunch/42", data: { url: "/" } }];

test("a push closes the notifications of messages that were read, also if it is late", async () => {
  const worker = start();
  await worker.push({ badged: { epoch: "e", version: 3, number: 0 } });
  worker.take();
  const retract = [
    { conversation_id: "lunch", seq: 42, tag: "a" },
    { conversation_id: "tea", seq: 1, tag: "b" },
  ];
  await worker.push({ badged: { epoch: "e", version: 2, number: 1, retract } });
  assert.deepEqual(worker.take(), [
    ["close", "lunch/42"],
    ["close", "tea/1"],
  ]);
});

test("an alert sets the number and shows its notification; a silent push only the number", async () => {
  const worker = start();
  await worker.push(alert);
  assert.deepEqual(worker.take().sort(), [["set", 3], notification]);
  await worker.push({ badged: { epoch: "e", version: 3, number: 0 } });
  assert.deepEqual(worker.take(), [["clear"]]);
});

test("a number that is late or repeated is not shown, also after the worker has ended", async () => {
  const worker = start();
  await worker.push({ badged: { epoch: "e", version: 7, number: 3 } });
  const next = start((next) => {
    next.caches = worker.caches;
  });
  await next.push({ badged: { epoch: "e", version: 6, number: 9 } });
  await next.push({ badged: { epoch: "e", version: 7, number: 3 } });
  assert.deepEqual(next.take(), []);
  await Promise.all([
    next.push({ badged: { epoch: "e", version: 9, number: 5 } }),
    next.push({ badged: { epoch: "e", version: 8, number: 4 } }),
    next.push({ badged: { epoch: "f", version: 1, number: 6 } }),
  ]);
  assert.deepEqual(next.take(), [
    ["set", 5],
    ["set", 6],
  ]);
});

describe("field case app-badge (accounted#2408, firebase-js#8416): the notification is shown", () => {
  const rejects = async () => Promise.reject(new DOMException("not installed", "NotAllowedError"));
  const throws = () => {
    throw new TypeError("not here");
  };
  const cases: [string, (worker: FakeWorker) => void][] = [
    [
      "is missing",
      (worker) => {
        worker.navigator = {};
      },
    ],
    [
      "rejects",
      (worker) => {
        worker.navigator = { setAppBadge: rejects, clearAppBadge: rejects };
      },
    ],
    [
      "throws",
      (worker) => {
        worker.navigator = { setAppBadge: throws, clearAppBadge: throws };
      },
    ],
    [
      "never settles",
      (worker) => {
        worker.navigator = { setAppBadge: () => new Promise(() => {}) };
      },
    ],
  ];
  for (const [name, change] of cases) {
    test(`where setAppBadge ${name}`, async (t: TestContext) => {
      t.mock.method(console, "warn", () => {});
      const worker = start(change);
      const done = worker.push(alert);
      if (name !== "never settles") await done;
      else await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(worker.take(), [notification]);
      const cleared = { ...alert, badged: { ...alert.badged, version: 3, number: 0, seq: 43 } };
      const again = worker.push(cleared);
      if (name !== "never settles") await again;
      else await new Promise((resolve) => setImmediate(resolve));
      assert.equal(worker.take().length, 1);
    });
  }
});

test("a number that could not be set is tried again with the next push", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  const worker = start();
  const { navigator } = worker;
  worker.navigator = { setAppBadge: async () => Promise.reject(new Error("busy")) };
  await worker.push(alert);
  assert.equal(warn.mock.callCount(), 1);
  worker.navigator = navigator;
  worker.take();
  await worker.push({ badged: alert.badged });
  assert.deepEqual(worker.take(), [["set", 3]]);
});

test("the number is set without storage, and without permission for notifications", async (t) => {
  const warn = t.mock.method(console, "warn", () => {});
  for (const change of [
    (worker: FakeWorker) => {
      worker.caches = undefined;
    },
    (worker: FakeWorker) => {
      worker.caches = { open: async () => Promise.reject(new DOMException("", "SecurityError")) };
    },
    (worker: FakeWorker) => {
      worker.denied = true;
    },
  ]) {
    const worker = start(change);
    await worker.push(alert);
    assert.deepEqual(worker.take().sort()[0], ["set", 3]);
  }
  assert.equal(warn.mock.callCount(), 1, "of the notification");
});

test("messages with large seqs have notifications of their own", async () => {
  const worker = start();
  for (const seq of ["1851234567890123777", "1851234567890123778"]) {
    await worker.push(JSON.stringify(alert).replace("42", seq));
  }
  const tags = worker
    .take()
    .flatMap((did) => (did as [string, string, NotificationOptions])[2]?.tag ?? []);
  assert.deepEqual(tags, ["lunch/1851234567890123777", "lunch/1851234567890123778"]);
});

test("other pushes are left to other listeners", async () => {
  const worker = start();
  for (const content of [
    null,
    "hello",
    "null",
    "7",
    { aps: {} },
    { badged: 5 },
    { badged: null },
  ]) {
    await worker.push(content);
  }
  assert.deepEqual(worker.take(), []);
});

test("a push that is late or repeated is not newer", () => {
  const shown = { epoch: "a", version: 7 };
  assert.equal(isNewer({ epoch: "a", version: 1 }, undefined), true);
  assert.equal(isNewer({ epoch: "a", version: 8 }, shown), true);
  assert.equal(isNewer({ epoch: "a", version: 7 }, shown), false);
  assert.equal(isNewer({ epoch: "a", version: 6 }, shown), false);
  assert.equal(isNewer({ epoch: "b", version: 1 }, shown), true);
});
