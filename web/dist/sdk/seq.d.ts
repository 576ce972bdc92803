/**
 * The position of a message in its conversation: an int64, at least 1.
 *
 * It is a number up to 2^53 - 1 and a bigint above, as for snowflake ids. Each
 * value has only one form, so `===`, `<` and `>` are correct between any two
 * seqs. For arithmetic, convert with `BigInt(seq)`.
 */
export type Seq = number | bigint;
/**
 * Normalizes a seq. It takes an integer, a bigint or a string of digits; in your
 * own JSON, use the string.
 *
 * @throws TypeError if the value is not a seq, or is a number above 2^53 - 1:
 * that may have been rounded and name another message.
 */
export declare function toSeq(value: Seq | string): Seq;
