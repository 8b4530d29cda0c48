/** Step ids: the user's id plus a counter suffix (protocol section 7, rule 1). */

import { StepArgumentError } from "./errors.js";
import { shown, typeName } from "./shown.js";

/** Of the user's id, in UTF-8, before the suffix. */
export const MAX_ID_BYTES = 200;

// What all SDKs and the engine call blank: JavaScript's own notion of white space differs.
const BLANK = /^[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$/;

/** Gives the ids of one invocation, in call order. No two calls share one. */
export class StepIds {
  readonly #used = new Set<string>();
  readonly #next = new Map<string, number>();

  /** Whether a call has this id. */
  has(stepId: string): boolean {
    return this.#used.has(stepId);
  }

  /**
   * The id of the next call: `add`, then `add:1`, `add:2`; a number that is taken is skipped.
   *
   * Throws StepArgumentError (a TypeError) for an id that is not 1–200 bytes of UTF-8, is blank, or holds a NUL or a
   * lone surrogate. Ids are neither trimmed nor normalized.
   */
  assign(userId: unknown): string {
    check(userId);
    let count = this.#next.get(userId) ?? 0;
    let stepId = count === 0 ? userId : `${userId}:${count}`;
    while (this.#used.has(stepId)) {
      count += 1;
      stepId = `${userId}:${count}`;
    }
    this.#used.add(stepId);
    this.#next.set(userId, count + 1);
    return stepId;
  }
}

function check(userId: unknown): asserts userId is string {
  if (typeof userId !== "string") throw new StepArgumentError(`a step id is a string, not ${typeName(userId)}`);
  if (BLANK.test(userId)) throw new StepArgumentError("a step id must not be empty or blank");
  if (userId.includes("\0")) throw new StepArgumentError(`step id ${shown(userId)} holds a NUL character`);
  if (!userId.isWellFormed()) {
    throw new StepArgumentError(`step id ${shown(userId)} is not valid Unicode (lone surrogate)`);
  }
  const size = new TextEncoder().encode(userId).length;
  if (size > MAX_ID_BYTES) {
    throw new StepArgumentError(
      `a step id has at most ${MAX_ID_BYTES} bytes of UTF-8, this one ${size}: ${shown(userId)}`,
    );
  }
}
