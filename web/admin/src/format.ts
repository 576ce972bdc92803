const numbers = new Intl.NumberFormat("en");
const compact = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });

/** `1,234,567`. */
export function count(n: number): string {
  return numbers.format(n);
}

/** `1 event`, `3 events`. */
export function counted(n: number, noun: string): string {
  return `${count(n)} ${noun}${n === 1 ? "" : "s"}`;
}

/** A rate in few letters: `0`, `0.4`, `12`, `1.2K`; a dash where nobody knows. */
export function rate(n: number | null | undefined): string {
  if (n === null || n === undefined) return "–";
  if (n > 0 && n < 10) return n.toFixed(1);
  return compact.format(Math.round(n));
}

/** A duration in few letters: `4 ms`, `2.1 s`, `3 min`, `2 h`, `5 d`; a dash where nobody knows. */
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

/** A time as an input of type datetime-local has it. */
export function forInput(time: Date): string {
  return when(time).replace(" ", "T");
}

/** The part of the width that a lag takes: any is seen, and ten times as much is a fifth more. */
export function lagShare(events: number): number {
  return events <= 0 ? 0 : Math.min(1, 0.08 + Math.log10(events) / 5);
}
