"use strict";
(() => {
  // demo/src/pushed.ts
  function isNewer(push, shown) {
    return shown === void 0 || push.epoch !== shown.epoch || push.version > shown.version;
  }

  // demo/src/worker.ts
  var CACHE = "badge";
  var SHOWN = "shown";
  var last = Promise.resolve();
  self.addEventListener("push", (event) => {
    const push = event;
    const data = push.data?.json();
    if (data === void 0) return;
    last = last.then(() => show(data)).catch(console.error);
    push.waitUntil(last);
  });
  async function show({ badged }) {
    const cache = await caches.open(CACHE);
    const shown = await (await cache.match(SHOWN))?.json();
    if (!isNewer(badged, shown)) return;
    if (badged.number > 0) await navigator.setAppBadge(badged.number);
    else await navigator.clearAppBadge();
    const { epoch, version } = badged;
    await cache.put(SHOWN, new Response(JSON.stringify({ epoch, version })));
  }
})();
