import { h, setText } from "../../page/dom.js";
import { troubles } from "./away.js";
import { Chart } from "./chart.js";
import { count, counted, duration, lagShare, onShard, rate, when } from "./format.js";
import { KeyedList } from "./list.js";
import { seconds, withGaps } from "./rates.js";
import type { Lag, Partition, Process, Rate, Server } from "./server.js";
import type { View } from "./view.js";

const KEPT_SECONDS = 3600;
/** A longer lag is highlighted. */
const LATE_SECONDS = 5;

/** The partitions, the rates of the last hour, and the processes. */
export class Overview implements View {
  readonly name = "overview";
  readonly title = "Overview";
  readonly element: HTMLElement;

  readonly #tiles = ["Behind", "Oldest waiting", "Connections", "Processes"].map((label) => {
    const value = h("dd", {}, "–");
    const note = h("dd", { class: "tile-note" });
    return {
      element: h("div", { class: "tile panel" }, h("dt", {}, label), value, note),
      value,
      note,
    };
  });
  readonly #throughput = new Chart(
    "Events per second",
    [
      { label: "appended", color: "--line-a" },
      { label: "folded", color: "--line-b" },
    ],
    rate,
  );
  readonly #delay = new Chart(
    "Delay from append to badge",
    [
      { label: "99 %", color: "--line-c" },
      { label: "median", color: "--line-b" },
    ],
    duration,
  );
  readonly #connections = new Chart(
    "Connections",
    [
      { label: "WebSocket", color: "--line-a" },
      { label: "event stream", color: "--line-d" },
    ],
    (n) => (n === null ? "–" : rate(n).replace(/\.0$/, "")),
  );
  readonly #pushed = new Chart(
    "Frames to clients per second",
    [
      { label: "sent", color: "--line-a" },
      { label: "repairs", color: "--line-c" },
    ],
    rate,
  );
  readonly #troubles = h("ul", { class: "notices", "aria-label": "Shards that are away" });
  readonly #partitions = h("tbody");
  readonly #processes = h("tbody");
  readonly #troubleItems = new KeyedList<string>(
    this.#troubles,
    (text) => text,
    (text) => h("li", { class: "notice is-bad" }, text),
  );
  readonly #partitionRows = new KeyedList<Partition>(
    this.#partitions,
    (p) => String(p.partition),
    partitionRow,
  );
  readonly #processRows = new KeyedList<Process>(
    this.#processes,
    (p) => p.process,
    processRow,
    emptyProcesses(),
  );
  #points: Rate[] = [];

  constructor() {
    this.element = h(
      "div",
      { class: "view" },
      this.#troubles,
      h("dl", { class: "tiles" }, ...this.#tiles.map(({ element }) => element)),
      h(
        "section",
        { class: "charts", "aria-label": "The last hour" },
        ...[this.#throughput, this.#delay, this.#connections, this.#pushed].map((c) => c.element),
      ),
      table(
        "Partitions",
        ["Partition", "Behind", "Events", "Oldest", "Folded", "Head", "Owner"],
        this.#partitions,
      ),
      table(
        "Processes",
        ["Process", "Roles", "Up for", "WebSocket", "Event stream", "Limits", "Frames", "Repairs"],
        this.#processes,
      ),
    );
  }

  async refresh(server: Server): Promise<void> {
    const [lag, processes, points] = await Promise.all([
      server.partitions(),
      server.processes(),
      server.rates(this.#points.at(-1)?.at),
    ]);
    this.#troubleItems.update(troubles(lag));
    this.#partitionRows.update(lag.partitions);
    this.#processRows.update(processes.map((p) => ({ ...p, seen_at: "" })));
    this.#showTiles(lag, processes);
    this.#showRates(points);
  }

  #showTiles({ partitions, away = [] }: Lag, processes: readonly Process[]): void {
    const behind = partitions.reduce((sum, p) => sum + p.events_behind, 0);
    const oldest = Math.max(0, ...partitions.map((p) => p.seconds_behind));
    const unowned = partitions.filter((p) => p.owner === "").length;
    const gateways = processes.flatMap((p) => p.connections ?? []);
    const sockets = gateways.reduce((sum, c) => sum + c.websockets, 0);
    const streams = gateways.reduce((sum, c) => sum + c.event_streams, 0);
    const tiles: [string, string, boolean][] = [
      [
        counted(behind, "event"),
        away.length > 0
          ? `away: ${away.map(({ shard }) => `shard ${shard}`).join(", ")}`
          : unowned > 0
            ? `${counted(unowned, "partition")} without an owner`
            : "every partition has an owner",
        away.length > 0 || unowned > 0,
      ],
      [duration(oldest), oldest > LATE_SECONDS ? "late" : "on time", oldest > LATE_SECONDS],
      [count(sockets + streams), `${count(streams)} by event stream`, false],
      [
        count(processes.length),
        [...new Set(processes.flatMap((p) => p.roles))].sort().join(", "),
        false,
      ],
    ];
    tiles.forEach(([value, note, bad], i) => {
      const tile = this.#tiles[i];
      if (tile === undefined) return;
      setText(tile.value, value);
      setText(tile.note, note);
      tile.element.classList.toggle("is-bad", bad);
    });
  }

  #showRates(points: readonly Rate[]): void {
    this.#points.push(...points);
    const newest = this.#points.at(-1);
    if (newest === undefined) return;
    const earliest = seconds(newest) - KEPT_SECONDS;
    this.#points = this.#points.filter((p) => seconds(p) > earliest);
    const all = withGaps(this.#points);
    const times = all.map(seconds);
    const of = (name: Exclude<keyof Rate, "at">) => all.map((p) => p[name]);
    this.#throughput.update(times, [of("appended_per_second"), of("folded_per_second")]);
    this.#delay.update(times, [of("delay_p99_seconds"), of("delay_p50_seconds")]);
    this.#connections.update(times, [of("websockets"), of("event_streams")]);
    this.#pushed.update(times, [of("frames_per_second"), of("repairs_per_second")]);
  }
}

export function table(title: string, columns: readonly string[], body: HTMLElement): HTMLElement {
  const id = `table-${title.toLowerCase().replace(/\W+/g, "-")}`;
  return h(
    "section",
    { class: "panel" },
    h("h2", { id, class: "panel-title" }, title),
    h(
      "div",
      { class: "scroll", tabindex: "0", role: "region", "aria-labelledby": id },
      h(
        "table",
        { class: "table" },
        h("thead", {}, h("tr", {}, ...columns.map((c) => h("th", { scope: "col" }, c)))),
        body,
      ),
    ),
  );
}

function partitionRow(p: Partition): HTMLElement {
  const bar = h("span", {
    class: p.seconds_behind > LATE_SECONDS ? "lag is-late" : "lag",
    "aria-hidden": "true",
  });
  bar.style.setProperty("--share", String(lagShare(p.events_behind)));
  return h(
    "tr",
    { class: p.owner === "" ? "is-bad" : undefined },
    h("th", { scope: "row", class: "number" }, `${onShard(p)}${p.partition}`),
    h("td", { class: "lag-cell" }, bar),
    h("td", { class: "number" }, count(p.events_behind)),
    h("td", { class: "number" }, duration(p.seconds_behind)),
    h("td", { class: "mono" }, p.folded),
    h("td", { class: "mono" }, p.head),
    h("td", {}, p.owner.replace(/^badged projector /, "") || "none"),
  );
}

function processRow(p: Process): HTMLElement {
  const c = p.connections;
  const cell = (n: number | undefined) =>
    h("td", { class: "number" }, n === undefined ? "–" : count(n));
  return h(
    "tr",
    {},
    h("th", { scope: "row" }, p.process),
    h("td", {}, p.roles.join(", ")),
    h(
      "td",
      { class: "number", title: `since ${when(p.started_at)}` },
      duration((Date.now() - Date.parse(p.started_at)) / 1000),
    ),
    cell(c?.websockets),
    cell(c?.event_streams),
    h("td", {}, c === undefined ? "–" : limits(c.limits)),
    cell(c?.frames_sent),
    cell(c?.reconciliation_repairs),
  );
}

function limits(l: NonNullable<Process["connections"]>["limits"]): string {
  const set = [
    l.connections > 0 ? `${count(l.connections)} in all` : "",
    l.user_connections > 0 ? `${count(l.user_connections)} a user` : "",
    l.connects_per_second > 0 ? `${rate(l.connects_per_second)} connects/s` : "",
    l.commands_per_second > 0 ? `${rate(l.commands_per_second)} commands/s` : "",
  ].filter((text) => text);
  return set.join(" · ") || "none";
}

function emptyProcesses(): HTMLElement {
  return h(
    "tr",
    {},
    h("td", { class: "empty", colspan: "8" }, "No process has reported in the last 20 s."),
  );
}
