import { h } from "../../page/dom.js";
import { AwayNotice, missingOf } from "./away.js";
import { confirm } from "./dialog.js";
import { difference } from "./differences.js";
import { counted, duration, onShard, when } from "./format.js";
import { KeyedList } from "./list.js";
import { hashOf } from "./place.js";
import type { Difference, Job, JobKind, JobTarget, Server } from "./server.js";
import type { Page, View } from "./view.js";

/** Rebuilds and verifications. */
export class Jobs implements View {
  readonly name = "jobs";
  readonly title = "Jobs";
  readonly element: HTMLElement;
  readonly #page: Page;
  readonly #cards = h("ul", { class: "cards", "aria-label": "Jobs" });
  readonly #list: KeyedList<Job>;
  readonly #away = new AwayNotice();
  readonly #onRunning: (n: number) => void;
  /** The job in the URL, and whether it was scrolled into view. */
  #wanted: number | undefined;
  #found = true;

  constructor(page: Page, onRunning: (n: number) => void) {
    this.#page = page;
    this.#onRunning = onRunning;
    this.#list = new KeyedList(
      this.#cards,
      ({ id }) => String(id),
      (job) => this.#card(job),
      h("li", { class: "empty panel" }, "No job has run yet."),
    );
    this.element = h(
      "div",
      { class: "view" },
      h("div", { class: "forms" }, this.#verifyForm(), this.#rebuildForm()),
      this.#away.element,
      this.#cards,
    );
  }

  async refresh(server: Server): Promise<void> {
    const { items: jobs, away } = await server.jobs();
    this.#away.show(missingOf(away, "jobs are missing here."));
    const wanted = this.#wanted;
    if (wanted !== undefined && !jobs.some(({ id }) => id === wanted)) {
      const job = await server.job(wanted);
      if (job !== undefined) this.#list.update([...jobs, job]);
      else this.#list.update(jobs);
    } else {
      this.#list.update(jobs);
    }
    this.#onRunning(jobs.filter(({ state }) => state === "running").length);
    this.#point();
  }

  arrive(params: URLSearchParams): void {
    const id = Number(params.get("job") ?? Number.NaN);
    this.#wanted = Number.isSafeInteger(id) ? id : undefined;
    this.#found = this.#wanted === undefined;
    this.#point();
  }

  /** Scrolls the job in the URL into view, once. */
  #point(): void {
    for (const card of this.#cards.children) {
      const wanted = card instanceof HTMLElement && card.id === `job-${this.#wanted}`;
      card.classList.toggle("is-wanted", wanted);
      if (!wanted || this.#found) continue;
      this.#found = true;
      const details = card.querySelector("details");
      if (details) details.open = true;
      card.scrollIntoView({ block: "center" });
      card.focus({ preventScroll: true });
    }
  }

  #verifyForm(): HTMLElement {
    const partition = field("verify-partition", "Partition", "all");
    const user = field("verify-user", "User", "all users", "text");
    const sample = field("verify-sample", "Sample of users", "no");
    return this.#form(
      "Verify",
      "Replays the log and compares every number with the tables. Changes nothing.",
      [partition, user, sample],
      () => {
        void this.#start("verification", {
          ...number("partition", partition.input),
          ...(user.input.value !== "" && { users: [user.input.value] }),
          ...number("sample", sample.input),
        });
      },
    );
  }

  #rebuildForm(): HTMLElement {
    const partition = field("rebuild-partition", "Partition", "all");
    const user = field("rebuild-user", "User", "all users", "text");
    const load = field("rebuild-load", "Max load", "1", "decimal");
    return this.#form(
      "Rebuild",
      "Replays the log into staging tables, and swaps only those that differ. Clients are served meanwhile.",
      [partition, user, load],
      async () => {
        const whose =
          user.input.value !== ""
            ? `user ${user.input.value}`
            : partition.input.value !== ""
              ? `partition ${partition.input.value}`
              : "all partitions";
        const text = `The tables of ${whose} are made what the log says. Where nothing is wrong nothing changes.`;
        if (!(await confirm(`Rebuild ${whose}?`, text, "Rebuild", "Do not rebuild"))) return;
        await this.#start("rebuild", {
          ...number("partition", partition.input),
          ...(user.input.value !== "" && { user: user.input.value }),
          ...number("max_load", load.input),
        });
      },
    );
  }

  #form(
    title: string,
    text: string,
    fields: readonly Field[],
    submit: () => void | Promise<void>,
  ): HTMLElement {
    const form = h(
      "form",
      { class: "panel form" },
      h("h2", {}, title),
      h("p", { class: "soft" }, text),
      ...fields.map(({ element }) => element),
      h("button", { class: "button is-main", type: "submit" }, title),
    );
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      void submit();
    });
    return form;
  }

  async #start(kind: JobKind, target: JobTarget): Promise<void> {
    await this.#page.act(
      () => this.#page.server.startJob(kind, target),
      kind === "rebuild" ? "The rebuild has begun" : "The verification has begun",
    );
  }

  #card(job: Job): HTMLElement {
    const title = `${job.kind === "rebuild" ? "Rebuild" : "Verification"} of ${targetOf(job.arguments)}`;
    const cancel = h(
      "button",
      {
        class: "button",
        type: "button",
        "aria-label": `Cancel ${job.kind} of ${targetOf(job.arguments)}, job ${job.id}`,
        disabled: job.cancel_requested,
      },
      job.cancel_requested ? "Canceling…" : `Cancel ${job.kind}`,
    );
    cancel.addEventListener("click", () =>
      this.#page.act(() => this.#page.server.cancelJob(job), `Job ${job.id} is being canceled`),
    );
    const running = job.state === "running";
    const card = h(
      "li",
      { class: "card panel", id: `job-${job.id}`, tabindex: "-1", "data-state": job.state },
      h(
        "div",
        { class: "card-head" },
        h("span", { class: "state", "data-state": stateOf(job) }, stateWords(job)),
        h("h3", {}, title),
        h(
          "a",
          { class: "soft mono", href: hashOf("jobs", { job: String(job.id) }) },
          `job ${job.id}`,
        ),
        ...(running ? [h("div", { class: "card-buttons" }, cancel)] : []),
      ),
    );
    if (running) card.append(progress(job, title));
    card.append(
      h(
        "p",
        { class: "soft" },
        `${onShard(job)}${job.started_by}, ${when(job.started_at)}${took(job)}, on ${job.process}${job.arguments.max_load !== undefined && job.arguments.max_load < 1 ? `, max load ${job.arguments.max_load}` : ""}`,
      ),
    );
    const result = resultOf(job);
    if (result !== "") card.append(h("p", {}, result));
    if (job.error !== undefined) card.append(h("p", { class: "bad" }, job.error));
    const differences = differencesOf(job);
    if (differences.length > 0) {
      card.append(
        h(
          "details",
          {},
          h(
            "summary",
            {},
            `${counted(differences.length, "difference")}${differences.length >= 100 ? " and perhaps more" : ""}`,
          ),
          h("ul", { class: "differences" }, ...differences.map(difference)),
        ),
      );
    }
    return card;
  }
}

interface Field {
  readonly element: HTMLElement;
  readonly input: HTMLInputElement;
}

function field(id: string, label: string, placeholder: string, mode = "numeric"): Field {
  const input = h("input", {
    id,
    type: "text",
    inputmode: mode,
    placeholder,
    autocomplete: "off",
    spellcheck: "false",
    ...(mode === "numeric" && { pattern: "[0-9]*", title: "a number" }),
    ...(mode === "decimal" && { pattern: "0?\\.[0-9]+|1|1\\.0*", title: "from 0.01 to 1" }),
  });
  return { element: h("div", { class: "field" }, h("label", { for: id }, label), input), input };
}

function number(name: string, input: HTMLInputElement): Record<string, number> {
  return input.value === "" ? {} : { [name]: Number(input.value) };
}

function targetOf(t: JobTarget): string {
  if (t.user) return `user ${t.user}`;
  if (t.users?.length) return `user ${t.users.join(", ")}`;
  const where = t.partition === undefined ? "all partitions" : `partition ${t.partition}`;
  return t.sample ? `${counted(t.sample, "user")} of ${where}` : where;
}

/** Whether a finished job found differences. */
function stateOf(job: Job): string {
  const found =
    job.kind === "verification" && job.state === "done" && Number(job.result?.differences) > 0;
  return found ? "failed" : job.state;
}

function stateWords(job: Job): string {
  if (job.state !== "done") return job.state;
  return stateOf(job) === "failed" ? "differences" : "done";
}

function took({ state, started_at, ended_at }: Job): string {
  if (ended_at === undefined || state === "interrupted") return "";
  return `, took ${duration((Date.parse(ended_at) - Date.parse(started_at)) / 1000)}`;
}

function progress({ progress: p }: Job, title: string): HTMLElement {
  const percent = Math.floor(p.done * 100);
  const text = [
    `${percent} %`,
    p.events > 0 ? counted(p.events, "event") : "",
    !p.seconds_left ? "" : `${duration(p.seconds_left)} left`,
    p.note ?? "",
  ].filter((part) => part);
  return h(
    "div",
    { class: "progress" },
    h("progress", { max: "100", value: String(percent), "aria-label": title }),
    h("span", { class: "soft" }, text.join(" · ")),
  );
}

function resultOf({ kind, result: r }: Job): string {
  if (r === undefined) return "";
  if (r.user_id !== undefined) {
    return r.healed ? `healed in version ${r.version}` : "matches the log; nothing was changed";
  }
  const whole = `${counted(r.users ?? 0, "user")} and ${counted(r.conversations ?? 0, "conversation")} of ${counted(r.partitions ?? 0, "partition")}`;
  if (kind === "verification") {
    const n = Number(r.differences);
    return `${whole} compared: ${n === 0 ? "no difference" : counted(n, "difference")}`;
  }
  return r.different_users
    ? `${whole} rebuilt: ${counted(r.different_users, "user")} healed, ${counted(r.new_epochs ?? 0, "partition")} with a new epoch`
    : `${whole} rebuilt: no difference, nothing was changed`;
}

function differencesOf({ result }: Job): readonly Difference[] {
  if (Array.isArray(result?.differences)) return result.differences;
  return result?.first ?? [];
}
