import type { Rate } from "./server.js";

const POINT_SECONDS = 10;

/** The time of a point, in seconds since 1970. */
export function seconds({ at }: Rate): number {
  return Date.parse(at) / 1000;
}

/** The points, with an empty one in each gap. */
export function withGaps(points: readonly Rate[]): Rate[] {
  const all: Rate[] = [];
  let last: Rate | undefined;
  for (const point of points) {
    if (last !== undefined && seconds(point) - seconds(last) > 1.5 * POINT_SECONDS) {
      all.push({
        at: new Date((seconds(last) + POINT_SECONDS) * 1000).toISOString(),
        appended_per_second: null,
        folded_per_second: null,
        delay_p50_seconds: null,
        delay_p99_seconds: null,
        websockets: null,
        event_streams: null,
        frames_per_second: null,
        repairs_per_second: null,
      });
    }
    all.push(point);
    last = point;
  }
  return all;
}
