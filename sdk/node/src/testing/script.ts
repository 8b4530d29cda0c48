/** What a test has steps do instead of their own functions. */

import { refuseUnknown } from "../known-options.js";

/**
 * What a step does in place of its function, for the first `times` attempts of a run; null: for all of them.
 *
 * Of several for one step, the next begins where the one before ends. One that hits nothing is refused: see `check` of
 * the engine.
 */
export interface Fault {
  readonly step: string;
  readonly times: number | null;
  readonly body: (...args: any[]) => unknown;
}

/**
 * The function of the step is not executed, and the attempt fails: the first `times` (1) of a run, all with null.
 *
 * `step` is the step's id, with its counter where it has one (`"add:1"`). `error` is what is thrown, such as
 * `new NonRetriableError("…")` or `new RetryAfterError("…", "1h")`.
 */
export function fails(step: string, error?: unknown, options: { times?: number | null } = {}): Fault {
  refuseUnknown(options, ["times"]);
  const { times = 1 } = options;
  const thrown = error ?? new Error(`${step} fails, as the test says`);
  const body = (): never => {
    throw thrown;
  };
  return { step, times, body };
}

/**
 * The function of the step is not executed, and the attempt completes with a value; if that is a function, with what it
 * returns for the arguments of the step.
 */
export function returns(step: string, value: unknown, options: { times?: number | null } = {}): Fault {
  refuseUnknown(options, ["times"]);
  const { times = null } = options;
  return { step, times, body: typeof value === "function" ? (value as Fault["body"]) : () => value };
}
