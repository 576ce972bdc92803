import uPlot from "uplot";
import { h, setText } from "../../page/dom.js";

/** A line of a chart. */
export interface Line {
  readonly label: string;
  /** The CSS custom property with its color. */
  readonly color: string;
}

/** Values by time, in seconds since 1970; null if unknown. */
export type Values = readonly (number | null)[];

const HEIGHT = 168;
const LEAST_SPAN_SECONDS = 600;
const HOUR_SECONDS = 3600;

/** A chart of the last hour, with the newest values as text above it. */
export class Chart {
  readonly element: HTMLElement;
  readonly #lines: readonly Line[];
  readonly #format: (value: number | null) => string;
  readonly #plot = h("div", { class: "chart-plot", "aria-hidden": "true" });
  readonly #newest: HTMLElement[] = [];
  readonly #empty = h(
    "p",
    { class: "chart-empty" },
    "No data yet: the first point takes about 20 s.",
  );
  #chart: uPlot | undefined;
  #data: uPlot.AlignedData = [[]];

  constructor(title: string, lines: readonly Line[], format: (value: number | null) => string) {
    this.#lines = lines;
    this.#format = format;
    const legend = h("dl", { class: "legend" });
    for (const { label, color } of lines) {
      const value = h("dd", {}, format(null));
      this.#newest.push(value);
      legend.append(
        h("div", { class: "legend-line", "data-color": color }, h("dt", {}, label), value),
      );
    }
    this.element = h(
      "figure",
      { class: "chart panel" },
      h("figcaption", {}, h("span", { class: "chart-title" }, title), legend),
      this.#plot,
      this.#empty,
    );
    new ResizeObserver(() => this.#resize()).observe(this.#plot);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#rebuild());
  }

  update(times: readonly number[], values: readonly Values[]): void {
    this.#data = [[...times], ...values.map((v) => [...v])] as uPlot.AlignedData;
    this.#lines.forEach((_, i) => {
      const element = this.#newest[i];
      if (element) setText(element, this.#format(values[i]?.at(-1) ?? null));
    });
    this.#empty.hidden = times.length > 0;
    if (this.#chart === undefined) this.#rebuild();
    else this.#chart.setData(this.#data);
  }

  #resize(): void {
    if (this.#chart === undefined) this.#rebuild();
    else this.#chart.setSize({ width: this.#plot.clientWidth, height: HEIGHT });
  }

  #rebuild(): void {
    this.#chart?.destroy();
    this.#chart = undefined;
    if (this.#plot.clientWidth === 0) return; // not attached to the page
    const style = getComputedStyle(document.documentElement);
    const ink = style.getPropertyValue("--text-soft").trim();
    const line = style.getPropertyValue("--panel-line").trim();
    const font = `11px ${getComputedStyle(document.body).fontFamily}`;
    const axis: uPlot.Axis = {
      stroke: ink,
      font,
      grid: { stroke: line, width: 1 },
      ticks: { show: false },
    };
    this.#chart = new uPlot(
      {
        width: this.#plot.clientWidth,
        height: HEIGHT,
        padding: [10, 8, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: false, y: false }, points: { size: 6 } },
        scales: {
          x: {
            range: () => {
              const now = Date.now() / 1000;
              const first = this.#data[0][0] ?? now;
              return [Math.max(now - HOUR_SECONDS, Math.min(first, now - LEAST_SPAN_SECONDS)), now];
            },
          },
          y: { range: (_, __, max) => [0, Math.max(max * 1.15, Number.MIN_VALUE) || 1] },
        },
        axes: [
          { ...axis, size: 26, space: 70, values: "{HH}:{mm}" },
          {
            ...axis,
            size: 52,
            space: 36,
            values: (_, splits) => splits.map((v) => this.#format(v)),
          },
        ],
        series: [
          {},
          ...this.#lines.map(({ label, color }) => {
            const stroke = style.getPropertyValue(color).trim();
            return {
              label,
              stroke,
              width: 1.75,
              fill: `${stroke}18`,
              points: { show: true, size: 5, fill: stroke, filter: alone },
            };
          }),
        ],
      },
      this.#data,
      this.#plot,
    );
  }
}

/** The points without a neighbor, which no line connects. */
function alone(chart: uPlot, series: number): number[] {
  const values = chart.data[series] ?? [];
  const known = (i: number) => values[i] !== null && values[i] !== undefined;
  return [...values.keys()].filter((i) => known(i) && !known(i - 1) && !known(i + 1));
}
