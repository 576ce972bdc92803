import { h, setText } from "../../page/dom.js";
import { counted, duration } from "./format.js";
import type { Lag } from "./server.js";

/** A notice above a list that something is missing; hidden while nothing is. */
export class AwayNotice {
  readonly element = h("p", { class: "notice is-bad", role: "status", hidden: true });

  show(text: string): void {
    this.element.hidden = text === "";
    setText(this.element, text);
  }
}

/** Says that a list lacks what is on shards that cannot be reached, "" if there are none. */
export function missingOf(away: readonly string[] | undefined, what: string): string {
  if (away === undefined || away.length === 0) return "";
  const [are, theirs] =
    away.length === 1
      ? [`Shard ${away[0]} is`, "Its"]
      : [`Shards ${away.join(" and ")} are`, "Their"];
  return `${are} away. ${theirs} ${what}`;
}

/** Says which shards cannot be reached and what waits for them, a sentence for each. */
export function troubles({ away = [], waiting = [] }: Lag): string[] {
  return [
    ...away.map(({ shard, partitions = [], error }) => {
      const held =
        partitions.length === 1
          ? `partition ${partitions[0]}`
          : `the partitions ${partitions.join(", ")}`;
      return `Shard ${shard}, which has ${partitions.length === 0 ? "no partitions" : held}, is away: ${error}`;
    }),
    ...waiting.map(
      (w) =>
        `Waiting on shard ${w.on} for shard ${w.for}: ${counted(w.messages, "message")} to rooms, the oldest for ${duration(w.seconds)}`,
    ),
  ];
}
