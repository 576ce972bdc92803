/**
 * Refuses an argument.
 *
 * @throws TypeError that names it, and says what it is and what it must be.
 * @internal
 */
export function refuse(name: string, wanted: string, value: unknown): never {
  throw new TypeError(`${name} must be ${wanted}, is ${shown(value)}`);
}

/** Shows a value in an error: the start of a text, a number, or a type. @internal */
export function shown(value: unknown): unknown {
  if (typeof value === "string") return JSON.stringify(value.replace(/^(.{40}).+/s, "$1…"));
  return typeof value === "number" || typeof value === "bigint" ? value : typeof value;
}
