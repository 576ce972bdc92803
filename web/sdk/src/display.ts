import { covers, NO_NUMBERS, numbersOf, shareOf } from "./category.js";
import type { Badged } from "./client.js";
import type { Conversation } from "./frames.js";

/** What a badge counts: everything, a category with those below it, or a conversation. */
export interface Part {
  readonly category?: string | undefined;
  readonly conversation?: string | undefined;
  /**
   * What is counted: `messages` (default), as the total does; of these the
   * `mentions`, the `unseen`, or the `marked`, which no unread message stands for; the
   * `conversations` that add to it; or the messages that a level keeps out (`muted`).
   */
  readonly count?:
    | "messages"
    | "conversations"
    | "mentions"
    | "unseen"
    | "muted"
    | "marked"
    | undefined;
}

/** The count of a part; 0 of what the client does not have. */
export function countOf(client: Badged, { category, conversation, count }: Part = {}): number {
  const state = conversation === undefined ? undefined : client.conversations.get(conversation);
  const numbers =
    conversation === undefined
      ? numbersOf(client, category)
      : ((state && shareOf(state, client.badge?.levels ?? {})) ?? NO_NUMBERS);
  if (count === "conversations") return numbers.unreadConversations;
  if (count === "muted") return numbers.muted.total;
  return numbers[count === undefined || count === "messages" ? "total" : count];
}

/** Calls when the count of a part may have changed. The returned function ends it. */
export function onCount(client: Badged, { conversation }: Part, call: () => void): () => void {
  // A level of a category changes what conversations add, but not the conversations.
  const ignoreBadge = client.on("total", call);
  if (conversation === undefined) return ignoreBadge;
  const ignoreConversation = client.on("conversation", ({ conversationId }) => {
    if (conversationId === conversation) call();
  });
  return () => {
    ignoreBadge();
    ignoreConversation();
  };
}

/** The conversations that the client has, of a category with those below it or of all; the last changed first. */
export function conversationsOf(client: Badged, category?: string): readonly Conversation[] {
  return [...client.conversations.values()]
    .filter((c) => category === undefined || covers(category, c.category))
    .sort((a, b) => b.version - a.version);
}

/** Calls once after conversations have changed, however many. The returned function ends it. */
export function onConversations(client: Badged, call: () => void): () => void {
  let waiting = false;
  return client.on("conversation", () => {
    if (waiting) return;
    waiting = true;
    queueMicrotask(() => {
      waiting = false;
      call();
    });
  });
}

/**
 * Formats a count for a badge: empty for 0, and `99+` above `most` (default 99).
 */
export function formatCount(count: number, most = 99): string {
  if (count <= 0) return "";
  return count > most ? `${most}+` : String(count);
}

/**
 * Shows the count of a part, by default the total, in front of the page's title,
 * as in `(3) Inbox`, until the returned function is called. If the page sets a new
 * title, the count returns at the next change.
 */
export function showInTitle(client: Badged, part?: Part): () => void {
  if (!globalThis.document) return () => {};
  const show = (count: string) => {
    // Browsers remove the space at the end, if there is no other title.
    const title = document.title.replace(/^\(\d+\+?\)( |$)/, "");
    document.title = count === "" ? title : `(${count}) ${title}`;
  };
  return follow(client, part, (count) => show(formatCount(count)));
}

/**
 * Shows the count of a part, by default the total, on the icon of an installed web app, in the dock or on the
 * home screen, until the returned function is called. Does nothing in browsers
 * without the Badging API. iOS requires the permission for notifications.
 */
export function showOnApp(client: Badged, part?: Part): () => void {
  // setAppBadge is missing in some browsers, and rejects if the app is not installed.
  const { navigator } = globalThis;
  return follow(client, part, (count) => void navigator?.setAppBadge?.(count).catch(() => {}));
}

/** Options of {@link showOnFavicon}. */
export interface FaviconOptions extends Part {
  /** URL of the icon to draw on; default the page's icon. */
  readonly icon?: string;
  /** CSS color of the badge; default red. */
  readonly color?: string;
  /** CSS color of the count; default white. */
  readonly textColor?: string;
}

/**
 * Draws the count of a part, by default the total, on the page's icon until the returned function is called.
 * The Content-Security-Policy must allow `img-src data:`, and the icon must
 * have the page's origin.
 */
export function showOnFavicon(client: Badged, options: FaviconOptions = {}): () => void {
  if (!globalThis.document) return () => {};
  const link =
    document.querySelector<HTMLLinkElement>('link[rel~="icon"]') ??
    document.head.appendChild(Object.assign(document.createElement("link"), { rel: "icon" }));
  // An earlier call may have drawn on the icon already: remember the original.
  const { dataset } = link;
  dataset.badgedHref ??= link.getAttribute("href") ?? "";
  dataset.badgedType ??= link.type;
  const { badgedHref: href, badgedType: type } = dataset;
  const image = new Image();
  image.src = options.icon ?? (href || "/favicon.ico");

  let latest = "";
  const show = async (count: string) => {
    latest = count;
    if (count === "") {
      link.type = type;
      link.setAttribute("href", href);
      return;
    }
    // If the icon does not load, draw the badge alone.
    await image.decode().catch(() => {});
    if (count !== latest) return;
    link.type = "image/png";
    link.href = drawFavicon(image, count, options);
  };
  return follow(client, options, (count) => void show(formatCount(count)));
}

const SIDE = 64;

function drawFavicon(image: HTMLImageElement, count: string, options: FaviconOptions): string {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = SIDE;
  const context = canvas.getContext("2d");
  if (context === null) return image.src;
  if (image.naturalWidth > 0) context.drawImage(image, 0, 0, SIDE, SIDE);

  context.font = "bold 34px system-ui, sans-serif";
  const height = 42;
  const width = Math.min(SIDE, Math.max(height, context.measureText(count).width + 18));
  context.fillStyle = options.color ?? "#e5251b";
  context.beginPath();
  context.roundRect(SIDE - width, SIDE - height, width, height, height / 2);
  context.fill();
  context.fillStyle = options.textColor ?? "#fff";
  context.textAlign = "center";
  context.textBaseline = "middle";
  context.fillText(count, SIDE - width / 2, SIDE - height / 2 + 2, width - 8);
  return canvas.toDataURL();
}

/** Calls `show` with the count now and at every change, and with 0 at the end. */
function follow(client: Badged, part: Part | undefined, show: (count: number) => void): () => void {
  const update = () => show(countOf(client, part));
  update();
  const stop = onCount(client, part ?? {}, update);
  return () => {
    stop();
    show(0);
  };
}
