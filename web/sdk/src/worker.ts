/**
 * The service worker for pushes: it sets the number on the app's icon, and shows
 * notifications, while no page is open. `badged-worker.js` is this as a script.
 *
 * @packageDocumentation
 */
import { parseExact, type Seq } from "./seq.js";

/** Which state a number belongs to. */
export interface Shown {
  readonly epoch: string;
  readonly version: number;
}

/** The content of a push. */
export interface Pushed {
  readonly badged: Shown & {
    readonly number: number;
    /** Of an alert, as `seq`, which is text if a number would be rounded, and `data`. */
    readonly conversation_id?: string;
    readonly seq?: Seq | string;
    readonly data?: Readonly<Record<string, string>>;
    /** Alerts to close: their messages were read or recalled. */
    readonly retract?: readonly { readonly conversation_id: string; readonly seq: Seq | string }[];
  };
  readonly title?: string;
  readonly body?: string;
}

/** The part of the event of a push that this uses. */
export interface PushEventLike {
  readonly data: { text(): string } | null;
  waitUntil(done: Promise<unknown>): void;
}

/** The part of the global scope of a service worker that this uses. */
export interface WorkerLike {
  addEventListener(type: "push", listener: (event: PushEventLike) => void): void;
  readonly registration: {
    showNotification(title: string, options: NotificationOptions): Promise<void>;
    getNotifications?(filter: { tag: string }): Promise<readonly { close(): void }[]>;
  };
  /** Without `setAppBadge`, as in Firefox, the icon has no number. */
  readonly navigator: Partial<Pick<Navigator, "setAppBadge" | "clearAppBadge">>;
  readonly caches?: Pick<CacheStorage, "open"> | undefined;
}

// The entry of the cache that says which number the icon has.
const CACHE = "badged";
const SHOWN = "shown";

/**
 * Shows the pushes of badged. Call it as the service worker starts, which may do more:
 * other pushes are left to other listeners.
 */
export function showPushes(worker = self as unknown as WorkerLike): void {
  // Numbers are shown one after the other: they share which is the newest.
  let last: Promise<unknown> = Promise.resolve();
  worker.addEventListener("push", (event) => {
    const pushed = decode(event);
    if (pushed === undefined) return;
    // Either is done even if the other fails, at once or later.
    last = last.then(() => setNumber(worker, pushed)).catch(console.warn);
    const done = [last, notify(worker, pushed), retract(worker, pushed)];
    event.waitUntil(Promise.all(done.map((each) => each.catch(console.warn))));
  });
}

/** Whether the number of a push replaces the one that is shown. Pushes may come late or twice. */
export function isNewer(push: Shown, shown: Shown | undefined): boolean {
  return shown === undefined || push.epoch !== shown.epoch || push.version > shown.version;
}

/** The content of a push; undefined if it is not one of badged. */
function decode({ data }: PushEventLike): Pushed | undefined {
  try {
    const pushed = parseExact(data?.text() ?? "") as Pushed;
    return typeof pushed.badged.epoch === "string" ? pushed : undefined;
  } catch {
    return undefined;
  }
}

async function setNumber({ navigator, caches }: WorkerLike, { badged }: Pushed): Promise<void> {
  const { epoch, version, number } = badged;
  // Browsers without storage show every number.
  const cache = await caches?.open(CACHE).catch(() => undefined);
  const shown: Shown | undefined = await (await cache?.match(SHOWN))?.json();
  if (!isNewer(badged, shown)) return;
  if (number > 0) await navigator.setAppBadge?.(number);
  else await navigator.clearAppBadge?.();
  await cache?.put(SHOWN, new Response(JSON.stringify({ epoch, version })));
}

async function notify({ registration }: WorkerLike, { badged, title, body }: Pushed) {
  if (title === undefined && body === undefined) return;
  await registration.showNotification(title ?? "", {
    ...(body === undefined ? {} : { body }),
    // A repeated push replaces its notification.
    tag: tagOf(badged),
    data: badged.data,
  });
}

/** The tag of the notification of a message. */
function tagOf(message: { conversation_id?: string; seq?: Seq | string }): string {
  return `${message.conversation_id}/${message.seq}`;
}

/** Closes the notifications of messages that were read or recalled; those of a late push, too. */
async function retract({ registration }: WorkerLike, { badged }: Pushed): Promise<void> {
  for (const message of badged.retract ?? []) {
    const shown = await registration.getNotifications?.({ tag: tagOf(message) });
    for (const notification of shown ?? []) notification.close();
  }
}
