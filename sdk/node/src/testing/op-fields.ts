/** Fields of an op that the workflow's author is to blame for: read, or refused as the engine refuses them. */

import { parseDuration } from "../duration.js";
import { encode } from "../values.js";
import { ExpressionError } from "../rules/tokens.js";
import { OUTPUT_BYTES } from "./world.js";

/** An op as the function has answered it. */
export type Op = Readonly<Record<string, any>>;

const BACKOFF_MS = 2000;
const LONGEST_BACKOFF_MS = 600_000;

/** A field breaks a rule: the step is memoized as failed. */
export class BadField extends Error {
  constructor(
    message: string,
    readonly kind: string = "InvalidStep",
  ) {
    super(message);
  }
}

/** A value that is stored. Throws BadField where it is too large. */
export function payload(value: unknown, what: string): unknown {
  const size = new TextEncoder().encode(encode(value, what)).length;
  if (size > OUTPUT_BYTES) throw new BadField(`${what} has ${size} bytes, ${OUTPUT_BYTES} are allowed`, "TooLarge");
  return value ?? null;
}

/** Milliseconds of a duration; null for none. */
export function durationOf(op: Op, field: string): number | null {
  const value: unknown = op[field];
  if (value == null || value === "run") return null;
  try {
    return parseDuration(value);
  } catch (error) {
    throw new BadField(`${field} ${JSON.stringify(value)}: ${(error as Error).message}`);
  }
}

/** Reads an expression. Throws BadField for one that the engine refuses. */
export function checked(op: Op, field: string, read: (text: unknown) => unknown): void {
  try {
    if (op[field] != null) read(op[field]);
  } catch (error) {
    if (!(error instanceof ExpressionError)) throw error;
    throw new BadField(`${field} ${JSON.stringify(op[field])}: ${error.message}`);
  }
}

/** `match` and `if` as the engine shows them: one expression. */
export function shownCondition({ match, if: condition }: Op): string | null {
  if (match == null) return condition ?? null;
  const joined = `event.${match} == async.${match}`;
  return condition == null ? joined : `${joined} && (${condition})`;
}

/** When the attempt after number `made` is made: the backoff without its jitter, or what the error says. */
export function retryAt(op: Op, made: number, nowMs: number): number {
  const after: unknown = op["retry_after"];
  if (after != null) {
    try {
      return nowMs + parseDuration(after);
    } catch {
      const at = typeof after === "string" ? Date.parse(after) : Number.NaN;
      if (!Number.isNaN(at)) return Math.max(nowMs, at);
    }
  }
  return nowMs + Math.min(BACKOFF_MS * 2 ** (made - 1), LONGEST_BACKOFF_MS);
}
