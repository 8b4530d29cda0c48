/** Middleware: what a project does around every invocation and step, and to every value that the engine stores. */

import type { Context } from "./context.js";

/**
 * What a value is: data of an event (also of a start and of an invoke), the result or the arguments of a step, or the
 * output of a run.
 */
export type Where = "event" | "step" | "run";

/** A step whose function is executed now. `attempt` counts from 0; `args` are those of `step.run`. */
export interface StepInfo {
  readonly id: string;
  readonly name: string;
  readonly workflow: string;
  readonly runId: string;
  readonly attempt: number;
  readonly args: readonly unknown[];
}

/** What an execution of a step came to. */
export type StepOutcome =
  { readonly status: "completed"; readonly output: unknown } | { readonly status: "failed"; readonly error: unknown };

/** What an invocation came to: the run has ended, or goes on; `error` is that of an attempt that failed. */
export interface InvocationOutcome {
  readonly status: "completed" | "failed" | "continues";
  readonly error: { readonly name: string; readonly message: string } | null;
}

/**
 * An object with any of these members, given as `new Workflows({ middleware: [first, second] })`.
 *
 * `…Starts` and `encode` are called in the order of the list, `…Ends` and `decode` in reverse. What `invocationStarts`
 * throws fails the attempt of the function, what `stepStarts` and `encode` throw that of the step; what `…Ends` throws
 * is logged, for the result stands. A replayed step calls `decode`, and neither `stepStarts` nor `stepEnds`.
 */
export interface Middleware {
  invocationStarts?(ctx: Context<any>): void | Promise<void>;
  invocationEnds?(ctx: Context<any>, outcome: InvocationOutcome): void | Promise<void>;
  stepStarts?(step: StepInfo): void | Promise<void>;
  stepEnds?(step: StepInfo, outcome: StepOutcome): void | Promise<void>;
  /** What is stored in place of a value: JSON, an object if `where` is "event". */
  encode?(value: unknown, where: Where): unknown;
  /**
   * The value in place of which this was stored. Events from elsewhere were never encoded, and neither was what was stored
   * before the middleware was there: give those back as they are.
   */
  decode?(value: unknown, where: Where): unknown;
}
