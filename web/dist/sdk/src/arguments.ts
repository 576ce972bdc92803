import type { Command } from "./frames.js";
import { refuse } from "./refuse.js";
import { type Seq, seqOf } from "./seq.js";

/** The most seqs of a mark: more may not fit into a frame of 4 KiB. @internal */
export const MAX_SEQS = 150;

/**
 * Checks a text as the server does: it has at most `most` bytes as UTF-8.
 *
 * @throws TypeError that names the argument, as all these functions.
 * @internal
 */
export function toText(name: string, value: unknown, most = 128): string {
  if (
    typeof value === "string" &&
    value !== "" &&
    value.length <= most &&
    !/[\p{Cc}\p{Cs}]/u.test(value) &&
    encodeURIComponent(value).replace(/%../g, "-").length <= most
  ) {
    return value;
  }
  return refuse(name, `text of 1 to ${most} bytes without control characters`, value);
}

/** Checks the path of a category. @internal */
export function toCategory(value: unknown): string {
  const path = toText("category", value, 255);
  const parts = path.split("/");
  return parts.length <= 8 && parts.every((part) => part !== "" && [...part].length <= 64)
    ? path
    : refuse("category", "1 to 8 parts of 1 to 64 characters with a slash between each two", value);
}

const LEVELS = ["default", "all", "mentions", "direct_mentions", "none"];

/** The seq of a message. @internal */
export function toMessage(name: string, value: unknown): Seq {
  const seq = seqOf(name, value);
  return seq > 0 ? seq : refuse(name, "at least 1", value);
}

/** @internal */
export function toMessages(value: unknown, most: number): Seq[] {
  return Array.isArray(value) && value.length > 0 && value.length <= most
    ? value.map((seq, i) => toMessage(`seqs[${i}]`, seq))
    : refuse("seqs", `an array of 1 to ${most} seqs`, value);
}

/** @internal */
export function toFunction(name: string, value: unknown): void {
  if (typeof value !== "function") refuse(name, "a function", value);
}

/**
 * Checks a command, which may come from the app, from the storage, or from a tab with
 * another release: the server would refuse it, or could not even read it.
 *
 * @internal
 */
export function toCommand(given: unknown): Command {
  const fields = given as Record<string, unknown>;
  const { t, id, category, level, conversationId, upToSeq, seqs, fromSeq } = fields;
  if (typeof id !== "string" || !/^[\da-f-]{36}$/.test(id)) return refuse("id", "a UUID", id);
  if (t === "read_all" || t === "seen_all") {
    return category === undefined ? { t, id } : { t, id, category: toCategory(category) };
  }
  if (t === "level") {
    if (!LEVELS.includes(level as string)) refuse("level", `one of ${LEVELS.join(", ")}`, level);
    return { t, id, category: toCategory(category), level: level as string };
  }
  const of = { id, conversationId: toText("conversationId", conversationId) };
  if (t === "read" || t === "seen") return { t, ...of, upToSeq: toMessage("upToSeq", upToSeq) };
  if (t !== "mark_unread") return refuse("t", "a command of this release", t);
  if (fromSeq === undefined) {
    return seqs === undefined ? { t, ...of } : { t, ...of, seqs: toMessages(seqs, MAX_SEQS) };
  }
  if (seqs !== undefined) refuse("seqs", "left out with fromSeq", seqs);
  return { t, ...of, fromSeq: toMessage("fromSeq", fromSeq) };
}
