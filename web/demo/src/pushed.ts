/** Which state a number belongs to. */
export interface Shown {
  readonly epoch: string;
  readonly version: number;
}

/** What a push has for the app. */
export interface Pushed {
  readonly badged: Shown & { readonly number: number };
}

/** Whether the number of a push replaces the one that is shown. Pushes may come late or twice. */
export function isNewer(push: Shown, shown: Shown | undefined): boolean {
  return shown === undefined || push.epoch !== shown.epoch || push.version > shown.version;
}
