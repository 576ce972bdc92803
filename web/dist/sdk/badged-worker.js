"use strict";
(() => {
  // dist/sdk/src/seq.ts
  var MAX = 2n ** 63n - 1n;
  var MAX_NUMBER = Number.MAX_SAFE_INTEGER;
  var TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  function parseExact(text) {
    if (!/\d{16}/.test(text)) return JSON.parse(text);
    const quoted = text.replace(
      TOKEN,
      (token) => /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token
    );
    return JSON.parse(quoted);
  }

  // dist/sdk/src/worker.ts
  var CACHE = "badged";
  var SHOWN = "shown";
  function showPushes(worker = self) {
    let last = Promise.resolve();
    worker.addEventListener("push", (event) => {
      const pushed = decode(event);
      if (pushed === void 0) return;
      last = last.then(() => setNumber(worker, pushed)).catch(console.warn);
      const done = [last, notify(worker, pushed), retract(worker, pushed)];
      event.waitUntil(Promise.all(done.map((each) => each.catch(console.warn))));
    });
  }
  function isNewer(push, shown) {
    return shown === void 0 || push.epoch !== shown.epoch || push.version > shown.version;
  }
  function decode({ data }) {
    try {
      const pushed = parseExact(data?.text() ?? "");
      return typeof pushed.badged.epoch === "string" ? pushed : void 0;
    } catch {
      return void 0;
    }
  }
  async function setNumber({ navigator, caches }, { badged }) {
    const { epoch, version, number } = badged;
    const cache = await caches?.open(CACHE).catch(() => void 0);
    const shown = await (await cache?.match(SHOWN))?.json();
    if (!isNewer(badged, shown)) return;
    if (number > 0) await navigator.setAppBadge?.(number);
    else await navigator.clearAppBadge?.();
    await cache?.put(SHOWN, new Response(JSON.stringify({ epoch, version })));
  }
  async function notify({ registration }, { badged, title, body }) {
    if (title === void 0 && body === void 0) return;
    await registration.showNotification(title ?? "", {
      ...body === void 0 ? {} : { body },
      // A repeated push replaces its notification.
      tag: tagOf(badged),
      data: badged.data
    });
  }
  function tagOf(message) {
    return `${message.conversation_id}/${message.seq}`;
  }
  async function retract({ registration }, { badged }) {
    for (const message of badged.retract ?? []) {
      const shown = await registration.getNotifications?.({ tag: tagOf(message) });
      for (const notification of shown ?? []) notification.close();
    }
  }

  // dist/sdk/src/badged-worker.ts
  showPushes();
})();
//# sourceMappingURL=badged-worker.js.map
