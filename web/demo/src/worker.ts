// The service worker of the demo: pushes set the number on the icon of the app while no page
// is open. docs/push.md describes what a push has.

import { isNewer, type Pushed, type Shown } from "./pushed.js";

/** The event of a push; the types of pages lack it. */
interface PushEvent extends Event {
  readonly data: { json(): Pushed } | null;
  waitUntil(done: Promise<void>): void;
}

const CACHE = "badge";
const SHOWN = "shown";

/** Resolves once the pushes that came before are shown: they share what was shown last. */
let last: Promise<void> = Promise.resolve();

self.addEventListener("push", (event) => {
  const push = event as PushEvent;
  const data = push.data?.json();
  if (data === undefined) return;
  last = last.then(() => show(data)).catch(console.error);
  push.waitUntil(last);
});

async function show({ badged }: Pushed): Promise<void> {
  const cache = await caches.open(CACHE);
  const shown: Shown | undefined = await (await cache.match(SHOWN))?.json();
  if (!isNewer(badged, shown)) return;
  if (badged.number > 0) await navigator.setAppBadge(badged.number);
  else await navigator.clearAppBadge();
  const { epoch, version } = badged;
  await cache.put(SHOWN, new Response(JSON.stringify({ epoch, version })));
}
