const numbers = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** `1,234,567`. */
export function count(n: number | string): string {
  return numbers.format(typeof n === "string" ? BigInt(n) : n);
}

/** `1 event`, `3 events`. */
export function counted(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A short rate: `0`, `0.4`, `12`, `1.2K`; a dash if unknown. */
export function rate(n: number | null | undefined): string {
  if (n === null || n === undefined) return "–";
  if (n > 0 && n < 10) return n.toFixed(1);
  return compact.format(Math.round(n));
}

/** A short duration: `4 ms`, `2.1 s`, `3 min`, `2 h`, `5 d`; a dash if unknown. */
export function duration(seconds: number | null | undefined): string {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds === 0) return "0 s";
  if (seconds < 1) return `${Math.max(1, Math.round(seconds * 1000))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${Math.round(seconds)} s`;
  if (seconds < 7200) return `${Math.round(seconds / 60)} min`;
  if (seconds < 172_800) return `${Math.round(seconds / 3600)} h`;
  return `${Math.round(seconds / 86_400)} d`;
}

const dateTime = new Intl.DateTimeFormat("sv", { dateStyle: "short", timeStyle: "medium" });

/** A local date and time to the second: `2026-11-21 09:30:00`. */
export function when(time: string | Date): string {
  return dateTime.format(new Date(time));
}

/** A level, and when it ends if it does: `none until 2026-11-21 09:30:00`. */
export function levelOf(c: { readonly level: string; readonly level_until?: string }): string {
  return c.level_until === undefined ? c.level : `${c.level} until ${when(c.level_until)}`;
}

/** A time as the value of a datetime-local input. */
export function forInput(time: Date): string {
  return when(time).replace(" ", "T");
}

/** The fraction of the width for a lag, logarithmic: ten times the lag adds a fifth. Any lag is visible. */
export function lagShare(events: number): number {
  return events <= 0 ? 0 : Math.min(1, 0.08 + Math.log10(events) / 5);
}

const DAY_SECONDS = 86_400;

/** Labels of a time axis in seconds since 1970, with the day where it changes. */
export function axisTimes(splits: readonly number[]): string[] {
  const step = (splits[1] ?? 0) - (splits[0] ?? 0);
  const digits = step >= 60 ? 16 : step >= 1 ? 19 : 23;
  let day = "";
  return splits.map((seconds) => {
    const [date = "", time = ""] = [when(new Date(seconds * 1000)).slice(0, 10), precise(seconds)];
    const clock = step >= DAY_SECONDS ? "" : time.slice(11, digits);
    const label = date === day ? clock : `${clock}\n${date}`.trim();
    day = date;
    return label;
  });
}

/** A local date and time to the millisecond. */
function precise(seconds: number): string {
  const date = new Date(seconds * 1000);
  return `${when(date)}.${String(date.getMilliseconds()).padStart(3, "0")}`;
}

/** Says which of several shards something is on, in front of what follows. */
export function onShard({ shard }: { readonly shard?: string | undefined }): string {
  return shard === undefined ? "" : `shard ${shard} · `;
}
