import { refuse } from "./refuse.js";

/**
 * The position of a message in its conversation: an int64, at least 1.
 *
 * It is a number up to 2^53 - 1 and a bigint above, as for snowflake ids. Each
 * value has only one form, so `===`, `<` and `>` are correct between any two
 * seqs. For arithmetic, convert with `BigInt(seq)`.
 */
export type Seq = number | bigint;

const MAX = 2n ** 63n - 1n;
const MAX_NUMBER = Number.MAX_SAFE_INTEGER;

/**
 * Normalizes a seq. It takes an integer, a bigint or a string of digits; in your
 * own JSON, use the string.
 *
 * @throws TypeError if the value is not a seq, or is a number above 2^53 - 1:
 * that may have been rounded and name another message.
 */
export function toSeq(value: Seq | string): Seq {
  return seqOf("seq", value);
}

/** toSeq of an argument with this name. @internal */
export function seqOf(name: string, value: unknown): Seq {
  if (Number.isSafeInteger(value) && Number(value) >= 0) return value as number;
  if (typeof value === "bigint" || (typeof value === "string" && /^\d{1,19}$/.test(value))) {
    const exact = BigInt(value);
    if (exact >= 0n && exact <= MAX) return exact <= MAX_NUMBER ? Number(exact) : exact;
  }
  return refuse(name, "an integer, above 2^53 - 1 as a bigint or a string of digits", value);
}

// A string, matched whole to skip the digits in it, or a number.
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * JSON.parse, but returns integers that a JavaScript number would round as
 * strings of digits.
 *
 * @internal
 */
export function parseExact(text: string): unknown {
  if (!/\d{16}/.test(text)) return JSON.parse(text);
  const quoted = text.replace(TOKEN, (token) =>
    /^-?\d+$/.test(token) && !Number.isSafeInteger(Number(token)) ? `"${token}"` : token,
  );
  return JSON.parse(quoted);
}
