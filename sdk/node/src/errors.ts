/**
 * Errors that workflow code throws and catches.
 *
 *     Error
 *     ├── NonRetriableError       throw it: fails the step or run at once
 *     ├── RetryAfterError         throw it: sets the delay before the next attempt
 *     ├── StepError               catch it: a step that failed for good
 *     │   └── InvokeError         … whose child run failed, was cancelled or timed out
 *     ├── NestedStepError         a step call inside the function of another step
 *     ├── StepNotAwaitedError     a workflow returned with a step call it never awaited
 *     ├── NonDeterminismError     step ids that differ at every call: results are stored and never asked for again
 *     ├── UnknownStepStatusError  the engine sent a step status that this SDK does not know
 *     └── TypeError
 *         ├── DefinitionError     the options of a workflow break a rule
 *         ├── StepArgumentError   the arguments of a step call break a rule
 *         ├── SettingsError       a setting of `wf.serve()` or of a client is missing or wrong
 *         └── SerializationError  a value that JSON cannot hold
 */

import { shown } from "./shown.js";

/** `"500ms"`, `"30s"`, `"15m"`, `"1h30m"`, `"P1D"`, or a number of seconds (protocol section 5). */
export type Duration = string | number;

/** Throw it inside or outside a step to fail at once, without the attempts that are left. */
export class NonRetriableError extends Error {
  override name = "NonRetriableError";
}

/**
 * Throw it inside or outside a step to say when the next attempt is made.
 *
 * `retryAfter`: a duration, an ISO-8601 time, or a Date. The number of attempts stays the same.
 */
export class RetryAfterError extends Error {
  override name = "RetryAfterError";
  readonly retryAfter: Duration | Date;

  constructor(message: string, retryAfter: Duration | Date, options?: ErrorOptions) {
    super(message, options);
    this.retryAfter = retryAfter;
  }
}

/**
 * A step failed for good: its attempts are used up, or its error was not retriable.
 *
 * Thrown by the step call on every invocation, so it can be caught to compensate. Uncaught, it fails the run with the
 * original error: `name` and `message` are those of the original, `stack` is its stack, undefined if there is none.
 */
export class StepError extends Error {
  override name: string;
  readonly stepId: string;

  constructor(name: string, message: string, stepId: string, stack?: string) {
    super(message);
    this.name = name;
    this.stepId = stepId;
    Object.defineProperty(this, "stack", { value: stack, writable: true, configurable: true });
  }

  override toString(): string {
    return `step ${shown(this.stepId)} failed: ${this.name}: ${this.message}`;
  }
}

/** `step.invoke` failed. `name` is `InvokeError`, `InvokeTimeout`, or what refused the call. */
export class InvokeError extends StepError {}

/** A step was called inside the function of another step; steps cannot be nested (protocol section 7). */
export class NestedStepError extends Error {
  override name = "NestedStepError";

  constructor(inner: unknown, outer: string) {
    super(`step ${shown(inner)} was called inside step ${shown(outer)}: steps cannot be nested`);
  }
}

/** A workflow returned although a step call was never awaited: the step would silently not run. */
export class StepNotAwaitedError extends Error {
  override name = "StepNotAwaitedError";

  constructor(stepIds: readonly string[]) {
    super(`the workflow returned without awaiting its step call ${stepIds.map((id) => shown(id)).join(", ")}`);
  }
}

/**
 * The workflow executes a new step at every call and never asks for the one before.
 *
 * Step ids, and what decides which step comes next, must be the same at every call: make random numbers, times and what
 * is read elsewhere the result of a step.
 */
export class NonDeterminismError extends Error {
  override name = "NonDeterminismError";

  constructor(lost: string, stepId: string, inARow: number) {
    super(
      `${inARow} steps in a row were executed and not asked for by the next call, the last of them ${shown(lost)}` +
        ` before ${shown(stepId)}: step ids must be the same at every call, so random numbers, times and what is read` +
        " elsewhere must be the result of a step",
    );
  }
}

/** A memoized step has a status that is neither completed nor failed: it is neither returned nor run again. */
export class UnknownStepStatusError extends Error {
  override name = "UnknownStepStatusError";

  constructor(stepId: string, status: unknown) {
    super(`step ${shown(stepId)} has the unknown status ${shown(status)}; a newer SDK may know it`);
  }
}

/** The options of a workflow break a rule. `faults` lists all of them, each as `path: what is allowed`. */
export class DefinitionError extends TypeError {
  override name = "DefinitionError";
  readonly faults: readonly string[];

  constructor(workflow: unknown, faults: readonly string[]) {
    super(`workflow ${shown(workflow)}: ${faults.join("; ")}`);
    this.faults = faults;
  }
}

/** The arguments of a step call break a rule. Thrown before anything runs; not retried. */
export class StepArgumentError extends TypeError {
  override name = "StepArgumentError";
}

/**
 * A function of the SDK was given an option, or an event a member, that it does not have.
 *
 * The message names it, what is allowed, and what may have been meant. Thrown before anything is sent or runs; step
 * calls throw StepArgumentError in its place, and `wf.workflow` DefinitionError. Not retried.
 */
export class UnknownOptionError extends TypeError {
  override name = "UnknownOptionError";
}

/**
 * A setting is missing or wrong: an option, or the variable in its place. The message names it.
 *
 * It has no stack: a wrong setting has no place in the code, and a program that does not catch it ends with the message.
 */
export class SettingsError extends TypeError {
  override name = "SettingsError";

  constructor(message: string) {
    super(message);
    Object.defineProperty(this, "stack", { value: `${this.name}: ${message}`, writable: true, configurable: true });
  }
}

/** A value cannot be held by JSON. The message names the place and the type; not retried. */
export class SerializationError extends TypeError {
  override name = "SerializationError";
}
