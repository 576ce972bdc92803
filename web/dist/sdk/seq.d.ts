/**
 * The position of a message in its conversation: an int64, at least 1.
 *
 * It is a number where a JavaScript number holds it exactly (up to 2^53 - 1)
 * and a bigint above (snowflake ids, say). A value has only one of the two
 * forms, so `===`, `<` and `>` are right between any two seqs; for arithmetic,
 * convert with `BigInt(seq)`.
 */
export type Seq = number | bigint;
/**
 * Gives a seq its one form. It takes a whole number, a bigint, or decimal
 * digits, the form to carry seqs in through JSON of one's own.
 *
 * @throws RangeError for what is not a seq, and for a number above 2^53 - 1:
 * it may have been rounded on its way, and would name another message.
 */
export declare function toSeq(value: Seq | string): Seq;
