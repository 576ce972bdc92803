import uPlot from "uplot";
import { h, spoken } from "../../page/dom.js";
import { foldedTime } from "./eventtime.js";
import { axisTimes, count, counted, when } from "./format.js";
import { idText } from "./ids.js";
import { userPlace } from "./place.js";
import type { Explanation, History, Step } from "./server.js";
import { lineOf, nearestStep, signed, timesOf, whatOf } from "./steps.js";

const HEIGHT = 220;
/** Most steps that are drawn with points. */
const POINTS = 120;
const PAGE = 10;
/** Rows that the table of steps starts with. */
const ROWS = 200;
/** A press that moves farther than this is a drag, which zooms. */
const CLICK_PX = 4;

/** The total of a user over time as a line of steps, with details of the selected step. */
export class HistoryPanel {
  readonly element: HTMLElement;
  readonly #user: string;
  readonly #history: History;
  readonly #end: number;
  readonly #onChoose: (step: Step) => void;
  readonly #plot = h("div", {
    class: "history-plot",
    role: "slider",
    tabindex: "0",
    "aria-label": "Steps of the total",
    "aria-valuemin": "1",
  });
  readonly #told = h("div", { class: "step" });
  #chart: uPlot | undefined;
  #chosen: number;

  /** `chosen` is the position of the selected step; default the last one. */
  constructor(x: Explanation, chosen: string | undefined, onChoose: (step: Step) => void) {
    this.#user = x.user_id;
    this.#history = x.history ?? { before: 0, steps: [], left_out: 0 };
    this.#end = x.at === undefined ? Date.now() / 1000 : Date.parse(x.at) / 1000;
    this.#onChoose = onChoose;
    const { steps, left_out } = this.#history;
    const at = steps.findIndex(({ position }) => position === chosen);
    this.#chosen = at < 0 ? steps.length - 1 : at;
    this.#plot.setAttribute("aria-valuemax", String(steps.length));
    this.#plot.addEventListener("keydown", (event) => this.#onKey(event));
    const note = [
      counted(steps.length + left_out, "step"),
      left_out > 0
        ? `${count(steps.length)} of them shown, the least and the greatest of each stretch`
        : "",
      "drag to zoom, double-click for all",
    ].filter((text) => text);
    this.element = h(
      "section",
      { class: "panel history" },
      h(
        "header",
        { class: "history-head" },
        h("h2", {}, "Total over time"),
        h("p", { class: "soft" }, note.join(" · ")),
      ),
      this.#plot,
      this.#told,
      this.#table(),
    );
    new ResizeObserver(() => this.#draw()).observe(this.#plot);
    this.#tell();
  }

  /** Redraws, for example after the colors changed. */
  redraw(): void {
    this.#chart?.destroy();
    this.#chart = undefined;
    this.#draw();
  }

  #choose(i: number): void {
    const { steps } = this.#history;
    const at = Math.min(Math.max(i, 0), steps.length - 1);
    const step = steps[at];
    if (step === undefined || at === this.#chosen) return;
    this.#chosen = at;
    this.#tell();
    this.#chart?.redraw(false);
    this.#onChoose(step);
  }

  #onKey(event: KeyboardEvent): void {
    const by: Record<string, number> = {
      ArrowLeft: -1,
      ArrowDown: -1,
      ArrowRight: 1,
      ArrowUp: 1,
      PageDown: -PAGE,
      PageUp: PAGE,
      Home: Number.NEGATIVE_INFINITY,
      End: Number.POSITIVE_INFINITY,
    };
    const move = by[event.key];
    if (move === undefined) return;
    event.preventDefault();
    this.#choose(this.#chosen + move);
  }

  /** Shows the details of the selected step. */
  #tell(): void {
    const { steps, before } = this.#history;
    const step = steps[this.#chosen];
    if (step === undefined) return;
    const from = step.total - step.change;
    this.#plot.setAttribute("aria-valuenow", String(this.#chosen + 1));
    this.#plot.setAttribute(
      "aria-valuetext",
      `${when(step.folded_at)}, total ${from} to ${step.total}: ${whatOf(step)}`,
    );
    const move = (text: string, label: string, by: number) => {
      const button = h(
        "button",
        {
          class: "button",
          type: "button",
          "aria-label": label,
          disabled: steps[this.#chosen + by] === undefined,
        },
        text,
      );
      button.addEventListener("click", () => {
        this.#choose(this.#chosen + by);
        const again = this.#told.querySelector<HTMLButtonElement>(`[aria-label="${label}"]`);
        (again?.disabled ? this.#plot : again)?.focus({ preventScroll: true });
      });
      return button;
    };
    const fact = (name: string, value: Node | string, mono = false) =>
      h("div", {}, h("dt", {}, name), h("dd", { class: mono ? "mono" : undefined }, value));
    this.#told.replaceChildren(
      h(
        "div",
        { class: "step-head" },
        h(
          "p",
          { class: "step-change" },
          spoken("Total "),
          h("span", { class: "soft" }, count(from)),
          h("span", { class: "soft", "aria-label": "to" }, " → "),
          h("strong", {}, count(step.total)),
        ),
        h("span", { class: step.change > 0 ? "delta is-up" : "delta" }, signed(step.change)),
        h("p", { class: "step-what" }, whatOf(step)),
        h(
          "div",
          { class: "step-move" },
          h("span", { class: "soft" }, `Step ${count(this.#chosen + 1)} of ${count(steps.length)}`),
          move("‹", "Previous step", -1),
          move("›", "Next step", 1),
        ),
      ),
      h(
        "dl",
        { class: "facts" },
        fact("Folded", when(step.folded_at)),
        when(step.appended_at) === when(step.folded_at)
          ? ""
          : fact("Appended", when(step.appended_at)),
        fact("Event", idText(step.event_id), true),
        fact("From", idText(step.source ?? "–"), true),
        fact("Type", step.type ?? "–", true),
        fact("Place in the log", step.position, true),
      ),
      h(
        "p",
        { class: "step-links" },
        h("a", { href: userPlace(this.#user, { at: step.folded_at }) }, "The badge as of then"),
        step.conversation_id === undefined
          ? ""
          : h(
              "a",
              { href: userPlace(this.#user, { conversation: step.conversation_id }) },
              "Only this conversation",
            ),
        step.left_out
          ? h("span", { class: "soft" }, `${counted(step.left_out, "step")} before it left out`)
          : "",
        this.#chosen === 0 && before > 0
          ? h("span", { class: "soft" }, `${count(before)} were counted by archived events`)
          : "",
      ),
    );
  }

  #draw(): void {
    if (this.#plot.clientWidth === 0 || this.#history.steps.length === 0) return;
    if (this.#chart !== undefined) {
      this.#chart.setSize({ width: this.#plot.clientWidth, height: HEIGHT });
      return;
    }
    const style = getComputedStyle(document.documentElement);
    const color = (name: string) => style.getPropertyValue(name).trim();
    const { times, totals } = lineOf(this.#history, this.#end);
    const stepTimes = timesOf(this.#history.steps);
    const axis: uPlot.Axis = {
      stroke: color("--text-soft"),
      font: `12px ${getComputedStyle(document.body).fontFamily}`,
      grid: { stroke: color("--panel-line"), width: 1 },
      ticks: { show: false },
    };
    const line = color("--line-a");
    const chart = new uPlot(
      {
        width: this.#plot.clientWidth,
        height: HEIGHT,
        padding: [12, 14, 0, 0],
        legend: { show: false },
        cursor: { drag: { x: true, y: false }, points: { show: false }, y: false },
        scales: { y: { range: (_, __, most) => [0, Math.max(1, most) * 1.15] } },
        axes: [
          { ...axis, size: 40, space: 80, values: (_, splits) => axisTimes(splits) },
          {
            ...axis,
            size: 52,
            space: 36,
            incrs: [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 1e5, 1e6, 1e7, 1e8],
            values: (_, splits) => splits.map((n) => count(n)),
          },
        ],
        series: [
          {},
          {
            stroke: line,
            width: 2,
            fill: `${line}1c`,
            ...(uPlot.paths.stepped && { paths: uPlot.paths.stepped({ align: 1 }) }),
            points: {
              show: this.#history.steps.length <= POINTS,
              size: 7,
              width: 1.5,
              stroke: line,
              fill: color("--panel"),
              filter: (u) => [...(u.data[0] ?? []).keys()].slice(1, -1),
            },
          },
        ],
        hooks: {
          draw: [
            (u) => {
              const step = this.#history.steps[this.#chosen];
              const time = stepTimes[this.#chosen];
              if (step === undefined || time === undefined) return;
              const [x, y] = [u.valToPos(time, "x", true), u.valToPos(step.total, "y", true)];
              const { left, width } = u.bbox;
              if (x < left - 1 || x > left + width + 1) return;
              const ratio = devicePixelRatio;
              u.ctx.save();
              u.ctx.beginPath();
              u.ctx.arc(x, y, 6 * ratio, 0, 2 * Math.PI);
              u.ctx.fillStyle = line;
              u.ctx.strokeStyle = color("--panel");
              u.ctx.lineWidth = 2.5 * ratio;
              u.ctx.fill();
              u.ctx.stroke();
              u.ctx.restore();
            },
          ],
        },
      },
      [times, totals],
      this.#plot,
    );
    let pressed = 0;
    chart.over.addEventListener("pointerdown", ({ clientX }) => {
      pressed = clientX;
    });
    chart.over.addEventListener("click", ({ clientX, clientY }) => {
      if (Math.abs(clientX - pressed) > CLICK_PX) return;
      const { left, top } = chart.over.getBoundingClientRect();
      const points = this.#history.steps.map(
        ({ total }, i) =>
          [chart.valToPos(stepTimes[i] ?? 0, "x"), chart.valToPos(total, "y")] as const,
      );
      this.#choose(nearestStep(points, clientX - left, clientY - top));
    });
    this.#chart = chart;
  }

  /** The steps as a table, built when it is opened. */
  #table(): HTMLElement {
    const { steps } = this.#history;
    const body = h("tbody");
    const more = h("button", { class: "button", type: "button" }, "Show more");
    let rows = 0;
    const grow = () => {
      for (const end = rows + ROWS; rows < Math.min(end, steps.length); rows++) {
        body.append(this.#row(steps.length - 1 - rows));
      }
      more.hidden = rows >= steps.length;
    };
    more.addEventListener("click", grow);
    const details = h(
      "details",
      { class: "history-table" },
      h("summary", {}, "The steps as a table"),
      h(
        "div",
        { class: "scroll", tabindex: "0", role: "region", "aria-label": "Steps of the total" },
        h(
          "table",
          { class: "table" },
          h(
            "thead",
            {},
            h(
              "tr",
              {},
              ...["Folded", "Change", "Total", "What", "Event"].map((t) =>
                h("th", { scope: "col" }, t),
              ),
            ),
          ),
          body,
        ),
      ),
      more,
    );
    details.addEventListener("toggle", () => {
      if (rows === 0) grow();
    });
    return details;
  }

  #row(i: number): HTMLElement {
    const step = this.#history.steps[i];
    if (step === undefined) return h("tr");
    const button = h("button", { class: "unfold", type: "button" }, ...foldedTime(step));
    button.addEventListener("click", () => {
      this.#choose(i);
      this.#plot.scrollIntoView({ block: "nearest" });
    });
    return h(
      "tr",
      {},
      h("td", { class: "nowrap" }, button),
      h("td", { class: "number" }, signed(step.change)),
      h("td", { class: "number" }, count(step.total)),
      h("td", { class: "wide" }, whatOf(step)),
      h("td", { class: "mono wide" }, idText(step.event_id)),
    );
  }
}
