import type { History, Seq, Step } from "./server.js";

/** The width of a chart that has a single moment. */
const LONE_SECONDS = 60;

/** The line of a history: ascending times in seconds since 1970, and totals. */
export interface StepLine {
  readonly times: number[];
  readonly totals: number[];
}

/** The line to draw, with the total before the first step and the one at the end. */
export function lineOf({ before, steps }: History, end: number): StepLine {
  const times = timesOf(steps);
  const first = times[0];
  const last = times.at(-1);
  if (first === undefined || last === undefined) return { times: [], totals: [] };
  // Shorten a long time without steps, to leave room for them.
  const span = last > first ? last - first : LONE_SECONDS;
  return {
    times: [
      first - span / 40,
      ...times,
      Math.max(last + span / 20, Math.min(end, last + span / 4)),
    ],
    totals: [before, ...steps.map(({ total }) => total), steps.at(-1)?.total ?? 0],
  };
}

/** The time each step was folded, made ascending: the log is not ordered by clock to the millisecond. */
export function timesOf(steps: readonly Step[]): number[] {
  let latest = 0;
  return steps.map(({ folded_at }) => {
    latest = Math.max(latest, Date.parse(folded_at) / 1000);
    return latest;
  });
}

/** The step nearest to a point on the screen; of equal ones the later. */
export function nearestStep(points: readonly (readonly [number, number])[], x: number, y: number) {
  let nearest = -1;
  let least = Number.POSITIVE_INFINITY;
  points.forEach(([px, py], i) => {
    // The horizontal distance weighs more, because a step belongs to a time.
    const distance = (px - x) ** 2 + ((py - y) / 4) ** 2;
    if (distance <= least) {
      least = distance;
      nearest = i;
    }
  });
  return nearest;
}

/** Describes an event briefly. */
export function whatOf(e: {
  readonly type?: string | undefined;
  readonly conversation_id?: string | undefined;
  readonly seq?: Seq | undefined;
}): string {
  const conversation = e.conversation_id ?? "";
  switch (e.type) {
    case "message.delivered":
      return `Message ${e.seq} of ${conversation} delivered`;
    case "message.changed":
      return `Message ${e.seq} of ${conversation} changed`;
    case "message.recalled":
      return `Message ${e.seq} of ${conversation} recalled`;
    case "conversation.read":
      return `${conversation} read up to ${e.seq}`;
    case "conversation.expired":
      return `${conversation} expired up to ${e.seq}`;
    case "conversation.marked_unread":
      return `${conversation} marked unread`;
    case "conversation.reset":
      return `${conversation} reset to ${e.seq ?? 0}`;
    case "conversation.level_set":
      return `Level of ${conversation} set`;
    case "conversation.level_ended":
      return `Level of ${conversation} ended`;
    case "conversation.left":
      return `${conversation} left`;
    case "conversation.seen":
      return `${conversation} seen up to ${e.seq}`;
    case "category.level_set":
      return "Level of a category set";
    case "user.read_all":
      return "Everything read";
    case "user.seen_all":
      return "Everything seen";
    case "user.left_all":
      return "Everything of a category left";
    default:
      return e.type ?? "Not decoded";
  }
}

/** `+2`, `−1`. */
export function signed(change: number): string {
  return change < 0 ? `−${-change}` : `+${change}`;
}
