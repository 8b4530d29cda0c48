/** What an error becomes on the wire: error, retriable or not, and when to retry (protocol section 3). */

import {
  NestedStepError,
  NonDeterminismError,
  NonRetriableError,
  RetryAfterError,
  SerializationError,
  StepArgumentError,
  StepError,
  StepNotAwaitedError,
  UnknownOptionError,
} from "./errors.js";
import { shown } from "./shown.js";

/** Errors that the next attempt would meet again. */
const FINAL = [
  NonRetriableError,
  StepError,
  NestedStepError,
  NonDeterminismError,
  StepNotAwaitedError,
  StepArgumentError,
  UnknownOptionError,
  SerializationError,
];

/** Errors that user code throws to say what comes next, or the SDK with a sentence that says all. */
const DELIBERATE = [...FINAL, RetryAfterError];

const MESSAGE_CHARS = 8 * 1024;
const STACK_CHARS = 32 * 1024;
const MOST_CAUSES = 10;

/** An error as an op carries it. */
export interface DescribedError {
  readonly name: string;
  readonly message: string;
  readonly stack?: string;
}

/** The error fields of a `step_failed` or `run_failed` op; defaults are left out. */
export interface Failure {
  readonly error: DescribedError;
  readonly non_retriable?: true;
  readonly retry_after?: string | number;
}

/** What is logged below the line of a failed attempt: the stack, unless the error was thrown on purpose. */
export function tracebackOf(thrown: unknown): string | null {
  const isDeliberate = leavesOf(thrown).every((leaf) => DELIBERATE.some((kind) => leaf instanceof kind));
  return isDeliberate ? null : (failureOf(thrown).error.stack ?? null);
}

/**
 * Classifies what user code threw, inside or outside a step.
 *
 * An AggregateError is as retriable as its least retriable member, and one of a single member is that member. A
 * StepError keeps the error of the step that failed.
 */
export function failureOf(thrown: unknown): Failure {
  const leaves = leavesOf(thrown);
  const error = describe(leaves.length === 1 ? leaves[0] : thrown);
  if (leaves.some((leaf) => FINAL.some((kind) => leaf instanceof kind))) return { error, non_retriable: true };
  const delayed = leaves.find((leaf) => leaf instanceof RetryAfterError);
  return delayed === undefined ? { error } : { error, retry_after: retryAfter(delayed) };
}

function describe(thrown: unknown): DescribedError {
  try {
    return described(thrown);
  } catch {
    return { name: "Error", message: "(the error cannot be shown)" };
  }
}

function described(thrown: unknown): DescribedError {
  if (thrown instanceof StepError) {
    const { name, message, stack } = thrown;
    return stack === undefined ? { name, message } : { name, message, stack };
  }
  if (typeof thrown !== "object" || thrown === null) {
    return { name: "Error", message: (typeof thrown === "string" ? thrown : shown(thrown)).slice(0, MESSAGE_CHARS) };
  }
  const { message, stack } = thrown as { message?: unknown; stack?: unknown };
  const text = typeof message === "string" ? message : shown(thrown, MESSAGE_CHARS);
  const error = { name: nameOf(thrown), message: text.slice(0, MESSAGE_CHARS) };
  return typeof stack === "string" ? { ...error, stack: withCauses(stack, thrown).slice(0, STACK_CHARS) } : error;
}

/** The error's own name; that of its class where nobody gave it one. */
function nameOf(error: object): string {
  const { name } = error as { name?: unknown };
  const given = typeof name === "string" && name !== "" ? name : "Error";
  const made = (error.constructor as { name?: unknown } | undefined)?.name;
  return given === "Error" && error instanceof Error && typeof made === "string" && made !== "" ? made : given;
}

function withCauses(stack: string, error: object): string {
  const stacks = [stack];
  let cause = (error as { cause?: unknown }).cause;
  while (cause instanceof Error && stacks.length <= MOST_CAUSES) {
    stacks.push(cause.stack ?? String(cause));
    cause = cause.cause;
  }
  return stacks.join("\nCaused by: ");
}

function leavesOf(thrown: unknown): unknown[] {
  return thrown instanceof AggregateError && thrown.errors.length > 0 ? thrown.errors.flatMap(leavesOf) : [thrown];
}

/** As the op carries it. A bad one goes out as it is: the engine ignores it with a warning on the attempt. */
function retryAfter({ retryAfter: value }: RetryAfterError): string | number {
  if (value instanceof Date) return Number.isNaN(value.getTime()) ? String(value) : value.toISOString();
  return typeof value === "number" && Number.isFinite(value) ? value : String(value);
}
