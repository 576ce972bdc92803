import type { Badged } from "./client.js";

/**
 * A count as badges show it: nothing for 0, and `99+` above 99, or above
 * another limit.
 */
export function formatCount(count: number, most = 99): string {
  if (count <= 0) return "";
  return count > most ? `${most}+` : String(count);
}

/**
 * Keeps the total in front of the page's title, as in `(3) Inbox`, until the
 * returned function is called. The title may change meanwhile; a new one gets
 * its count with the next change of the total.
 */
export function showInTitle(client: Badged): () => void {
  const show = (count: string) => {
    const title = document.title.replace(/^\(\d+\+?\) /, "");
    document.title = count === "" ? title : `(${count}) ${title}`;
  };
  return follow(client, (total) => show(formatCount(total)));
}

/**
 * Keeps the total on the app's icon, in the dock or on the home screen, where
 * the browser can, until the returned function is called. It is for installed
 * web apps; iOS wants the permission for notifications first.
 */
export function showOnApp(client: Badged): () => void {
  // Not in all browsers, and rejects where the app is not installed.
  const { navigator } = globalThis;
  return follow(client, (total) => void navigator.setAppBadge?.(total).catch(() => {}));
}

/** How {@link showOnFavicon} draws. */
export interface FaviconOptions {
  /** The icon to draw upon; default: the page's. */
  readonly icon?: string;
  /** CSS colours of the badge and its count; default white on red. */
  readonly color?: string;
  readonly textColor?: string;
}

/**
 * Draws the total onto the page's icon, until the returned function is called.
 * A Content-Security-Policy must allow `img-src data:`, and the icon must be of
 * the page's own origin.
 */
export function showOnFavicon(client: Badged, options: FaviconOptions = {}): () => void {
  const link =
    document.querySelector<HTMLLinkElement>('link[rel~="icon"]') ??
    document.head.appendChild(Object.assign(document.createElement("link"), { rel: "icon" }));
  const { href, type } = link;
  const image = new Image();
  image.src = options.icon ?? (href || "/favicon.ico");

  let latest = "";
  const show = async (count: string) => {
    latest = count;
    // An icon that cannot be had leaves the badge by itself.
    await image.decode().catch(() => {});
    if (count !== latest) return;
    link.type = count === "" ? type : "image/png";
    link.href = count === "" ? href : drawFavicon(image, count, options);
  };
  return follow(client, (total) => void show(formatCount(total)));
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

/** Calls with the total now and at every change; at the end with 0. */
function follow(client: Badged, show: (total: number) => void): () => void {
  show(client.badge?.total ?? 0);
  const stop = client.on("total", ({ total }) => show(total));
  return () => {
    stop();
    show(0);
  };
}
