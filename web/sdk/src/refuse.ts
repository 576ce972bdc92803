/**
 * Refuses an argument.
 *
 * @throws TypeError that names it, and says what it is and what it must be.
 * @internal
 */
export function refuse(name: string, wanted: string, value: unknown): never {
  let given: unknown = typeof value;
  if (typeof value === "string") given = JSON.stringify(value.slice(0, 40));
  else if (typeof value === "number" || typeof value === "bigint") given = value;
  throw new TypeError(`${name} must be ${wanted}, is ${given}`);
}
