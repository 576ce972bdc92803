/**
 * The position of a message in its conversation: an int64, at least 1.
 *
 * It is a number where a JavaScript number holds it exactly (up to 2^53 - 1)
 * and a bigint above (snowflake ids, say). A value has only one of the two
 * forms, so `===`, `<` and `>` are right between any two seqs; for arithmetic,
 * convert with `BigInt(seq)`.
 */
export type Seq = number | bigint;

const MAX = 2n ** 63n - 1n;

/**
 * Gives a seq its one form. It takes a whole number, a bigint, or decimal
 * digits, the form to carry seqs in through JSON of one's own.
 *
 * @throws RangeError for what is not a seq, and for a number above 2^53 - 1:
 * it may have been rounded on its way, and would name another message.
 */
export function toSeq(value: Seq | string): Seq {
  if (typeof value === "number") {
    if (Number.isSafeInteger(value) && value >= 0) return value;
    throw new RangeError(
      `seq ${value} is not a whole number between 0 and 2^53 - 1; give larger ones as a bigint or a string of digits`,
    );
  }
  if (typeof value === "string" && !/^\d{1,19}$/.test(value)) {
    throw new RangeError(`seq ${JSON.stringify(value.slice(0, 40))} is not a string of digits`);
  }
  const exact = BigInt(value);
  if (exact < 0n || exact > MAX) throw new RangeError(`seq ${exact} is not between 0 and 2^63 - 1`);
  return exact <= Number.MAX_SAFE_INTEGER ? Number(exact) : exact;
}

// A string, matched whole so that digits inside it are left alone, or a number.
const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * JSON.parse, except that whole numbers that a JavaScript number would round
 * come back as strings of their digits.
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
