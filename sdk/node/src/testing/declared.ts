/** A workflow's definition as the engine of the kit follows it (engine section 1). */

import { parseDuration } from "../duration.js";
import { type Expression, condition, parse } from "../rules/expression.js";

/** An event by its name, and a condition on it. `timeoutMs`: only within this time. */
export interface Listener {
  readonly event: string;
  readonly holds: Expression;
  readonly timeoutMs: number | null;
}

/** The options that the kit knows. Of concurrency it need not: it executes one step at a time. */
export interface Declared {
  readonly name: string;
  readonly maxAttempts: number;
  readonly timeoutMs: number;
  readonly triggers: readonly Listener[];
  readonly cancelOn: readonly Listener[];
  readonly idempotency: Expression | null;
  readonly maxOps: number | null;
}

type Given = Readonly<Record<string, any>>;

/** Reads a definition of `wf.definitions`, whose rules `wf.workflow` has checked. */
export function declared(definition: Given): Declared {
  const { name, retries = 3, timeout = "30d", triggers = [], cancel_on = [], idempotency, checkpoint } = definition;
  return {
    name,
    maxAttempts: retries + 1,
    timeoutMs: parseDuration(timeout),
    triggers: triggers.filter(({ event }: Given) => event !== undefined).map(listener),
    cancelOn: cancel_on.map(listener),
    idempotency: idempotency === undefined ? null : parse(idempotency),
    maxOps: checkpoint?.max_steps ?? null,
  };
}

function listener({ event, match, if: condition_, timeout }: Given): Listener {
  const timeoutMs = timeout === undefined ? null : parseDuration(timeout);
  return { event, holds: condition(match, condition_), timeoutMs };
}
