/** A view and its parameters, as in the URL after the `#`. */
export interface Place {
  readonly view: string;
  readonly params: URLSearchParams;
}

/** Parses `#users?user=ada`: the view `users` with the user `ada`. */
export function placeOf(hash: string): Place {
  const text = hash.replace(/^#/, "");
  const mark = text.indexOf("?");
  if (mark < 0) return { view: text, params: new URLSearchParams() };
  return { view: text.slice(0, mark), params: new URLSearchParams(text.slice(mark + 1)) };
}

/** The hash of a place, without undefined and empty parameters. */
export function hashOf(view: string, params: Readonly<Record<string, string | undefined>> = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(params)) {
    if (value) query.set(name, value);
  }
  return query.size === 0 ? `#${view}` : `#${view}?${query}`;
}

/** The hash of the explanation of a user. */
export function userPlace(user: string, more: { conversation?: string; at?: string } = {}): string {
  return hashOf("users", { user, ...more });
}
