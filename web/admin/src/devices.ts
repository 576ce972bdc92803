import { h } from "../../page/dom.js";
import { count, counted, when } from "./format.js";
import { idText } from "./ids.js";
import { table } from "./overview.js";
import type { Device } from "./server.js";

/** The devices of a user: what each was told by push and when, and why not. */
export function devicesPanel(devices: readonly Device[]): HTMLElement {
  return table(
    "Devices",
    ["Device", "App", "Token", "Shows", "Was told", "Next push", "Last failure"],
    h("tbody", {}, ...devices.map(row)),
  );
}

function row(d: Device): HTMLTableRowElement {
  const app = d.environment === "production" ? d.app : `${d.app}, ${d.environment}`;
  return h(
    "tr",
    {},
    h("td", { class: "mono" }, idText(d.device_id)),
    h("td", {}, app, h("span", { class: "soft" }, ` ${d.platform}`)),
    h("td", { class: "mono" }, d.token),
    h("td", { class: "mono" }, d.shows),
    h("td", {}, told(d)),
    h("td", { class: "nowrap" }, next(d)),
    h("td", { class: "wide" }, failure(d)),
  );
}

/** What a device was told last. */
export function told(d: Device): string {
  if (d.number === undefined || d.told_at === undefined) return "nothing yet";
  return `${count(d.number)} at ${when(d.told_at)}`;
}

/** When a device is told next. */
export function next(d: Device): string {
  if (d.due_at === undefined) return "shows what it should";
  return Date.parse(d.due_at) <= Date.now() ? "now" : when(d.due_at);
}

/** Why the last push was not sent. */
export function failure(d: Device): string {
  if (d.last_error === undefined) return "";
  const at = d.last_error_at === undefined ? "" : ` at ${when(d.last_error_at)}`;
  return `${d.last_error}${at}, ${counted(d.failures, "failure")} in a row`;
}
