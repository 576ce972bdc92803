/** The sizes of the room that the slider offers. */
export const SIZES: readonly number[] = [
  5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 20_000, 50_000, 100_000,
];

const MOST = SIZES.length - 1;

/** The size at a place of the slider. */
export function sizeAt(place: number): number {
  return SIZES[Math.min(Math.max(Math.round(place), 0), MOST)] as number;
}

/** Where a number of members is on the slider, between its places on a logarithmic scale. */
export function placeOf(members: number): number {
  const above = SIZES.findIndex((size) => size >= members);
  if (above < 0) return MOST;
  const [low, high] = [SIZES[above - 1], SIZES[above]];
  if (low === undefined || high === undefined) return 0;
  return above - 1 + Math.log(members / low) / Math.log(high / low);
}

const numbers = new Intl.NumberFormat("en");

/** `100,000` */
export function thousands(n: number): string {
  return numbers.format(n);
}

/** `0.8 ms`, `12 ms`, `1,234 ms`, `12.3 s` */
export function duration(ms: number): string {
  if (ms >= 10_000) return `${(ms / 1000).toFixed(1)} s`;
  return `${ms < 1 ? ms.toFixed(1) : thousands(Math.round(ms))} ms`;
}

/** How long the bar of a number is, from 0 to 1, if `most` is full: on a logarithmic scale. */
export function share(n: number, most: number): number {
  return n <= 1 ? 0.02 : Math.min(1, Math.max(0.02, Math.log(n) / Math.log(most)));
}
