const SVG = "http://www.w3.org/2000/svg";

// Strokes on a grid of 24 by 24.
const PATHS = {
  back: "M15 5l-7 7 7 7",
  bell: "M6 9a6 6 0 0 1 12 0c0 5 2 7 2 7H4s2-2 2-7M10 20a2 2 0 0 0 4 0",
  chat: "M21 11.5a8.4 8.4 0 0 1-12.3 7.4L3 21l2.1-5.6A8.4 8.4 0 1 1 21 11.5z",
  down: "M12 5v14M6 13l6 6 6-6",
  feed: "M3 11v2a1 1 0 0 0 1 1h3l7 4V6L7 10H4a1 1 0 0 0-1 1zM18 9a4 4 0 0 1 0 6",
  group: "M5 9h14M5 15h14M10 4L8 20M16 4l-2 16",
  muted: "M6 9a6 6 0 0 1 9-5.2M18 11c0 4 2 5 2 5H8M4 16s2-1 2-5M10 20a2 2 0 0 0 4 0M3 3l18 18",
  mention: "M16 12a4 4 0 1 1-8 0 4 4 0 0 1 8 0zM16 8v5a2.5 2.5 0 0 0 5 0v-1a9 9 0 1 0-3.6 7.2",
  recall: "M9 14L4 9l5-5M4 9h9a6 6 0 0 1 0 12h-2",
  room: "M9 11a3.5 3.5 0 1 0 0-7 3.5 3.5 0 0 0 0 7zM2.5 20a6.5 6.5 0 0 1 13 0M16 4.2a3.5 3.5 0 0 1 0 6.6M18 14.2a6.5 6.5 0 0 1 3.5 5.8",
  send: "M12 20V5M5 12l7-7 7 7",
  thread: "M5 4v8a4 4 0 0 0 4 4h10M15 12l4 4-4 4",
  unread: "M12 12m-5 0a5 5 0 1 0 10 0a5 5 0 1 0-10 0",
} as const;

export type IconName = keyof typeof PATHS;

/** An icon in the color of the text, hidden from screen readers. */
export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS(SVG, "svg");
  svg.setAttribute("class", `icon icon-${name}`);
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", PATHS[name]);
  svg.append(path);
  return svg;
}
