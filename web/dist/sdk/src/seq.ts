/**
 * The position of a message in its conversation: an int64, at least 1.
 *
 * It is a number up to 2^53 - 1 and a bigint above, as for snowflake ids. Each
 * value has only one form, so `===`, `<` and `>` are correct between any two
 * seqs. For arithmetic, convert with `BigInt(seq)`.
 */
export type Seq = number | bigint;

const MAX = 2n ** 63n - 1n;

/**
 * Normalizes a seq. It takes an integer, a bigint or a string of digits; in your
 * own JSON, use the string.
 *
 * @throws RangeError if the value is not a seq, or is a number above 2^53 - 1:
 * that may have been rounded and name another message.
 */
export function toSeq(value: Seq | string): Seq {
  if (typeof value === "number") {
    if (Number.isSafeInteger(value) && value >= 0) return value;
    throw new RangeError(
      `seq ${value} is not an integer from 0 to 2^53 - 1; pass larger ones as a bigint or a string of digits`,
    );
  }
  if (typeof value === "string" && !/^\d{1,19}$/.test(value)) {
    throw new RangeError(`seq ${JSON.stringify(value.slice(0, 40))} is not a string of digits`);
  }
  const exact = BigInt(value);
  if (exact < 0n || exact > MAX) throw new RangeError(`seq ${exact} is not from 0 to 2^63 - 1`);
  return exact <= Number.MAX_SAFE_INTEGER ? Number(exact) : exact;
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
