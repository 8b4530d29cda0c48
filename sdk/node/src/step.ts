/** The `step` argument of a workflow: each call is a promise of the step's result (engine section 2). */

import {
  type StepCall,
  invokeCall,
  maxAttemptsOf,
  runCall,
  sendCall,
  sleepCall,
  sleepUntilCall,
  waitCall,
} from "./calls.js";
import type { DataOf, Event, EventMap, NameOf, OutgoingEvent } from "./event.js";
import { type Duration, StepArgumentError } from "./errors.js";
import type { Jsonified } from "./jsonified.js";
import { never, type Replay } from "./replay.js";
import { shown } from "./shown.js";
import type { DataOfWorkflow, OutputOfWorkflow, Workflow } from "./workflow.js";

/** Names of events that a step may name: those that the project declares, and those of the engine. */
export type EventName<Events extends EventMap> = NameOf<Events> | `runr/${string}`;

/** What may be sent: an event of a declared name with its data. */
export type Outgoing<Events extends EventMap> = {
  [Name in NameOf<Events>]: OutgoingEvent<Name, Events[Name]>;
}[NameOf<Events>];

/**
 * A step call that has its id but has not begun: it begins when it is awaited.
 *
 * A promise in all that matters. Not made by `new Promise`, because one that began at once could not tell steps that
 * run one after another from such as nobody waits for.
 */
export class PendingStep<T> implements Promise<T> {
  readonly [Symbol.toStringTag] = "PendingStep";
  readonly #replay: Replay;
  readonly #perform: () => Promise<unknown>;
  #result: Promise<T> | null = null;
  readonly #name: string;

  constructor(replay: Replay, call: StepCall) {
    this.#replay = replay;
    this.#name = call.userId;
    const stepId = replay.begin(call);
    this.#perform = stepId === null ? never : () => replay.perform(call, stepId);
  }

  /** What the user has named a step that has not been awaited; null for anything else. */
  static nameOfNotAwaited(value: unknown): string | null {
    return value instanceof PendingStep && value.#result === null ? value.#name : null;
  }

  then<A = T, B = never>(
    onFulfilled?: ((value: T) => A | PromiseLike<A>) | null,
    onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    if (this.#result === null) this.#result = this.#perform() as Promise<T>;
    else this.#replay.awaits();
    return this.#result.then(onFulfilled, onRejected);
  }

  catch<B = never>(onRejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<T | B> {
    return this.then(undefined, onRejected);
  }

  finally(onFinally?: (() => void) | null): Promise<T> {
    return this.then().finally(onFinally);
  }
}

/** Executes functions as steps; what `step.options(…)` returns. */
export class StepRunner {
  readonly #replay: Replay;
  readonly #maxAttempts: number | null;

  constructor(replay: Replay, maxAttempts: number | null = null) {
    this.#replay = replay;
    this.#maxAttempts = maxAttempts;
  }

  /**
   * Executes `fn(...args)` once and returns its result, through JSON, on this and every later invocation.
   *
   * A failure is retried with backoff; once the attempts are used up, StepError is thrown here. `fn` is executed at
   * least once: make its effects idempotent, for example with the run id and the step id as a key.
   */
  run<Args extends unknown[], R>(
    id: string,
    fn: (...args: Args) => R,
    ...args: Args
  ): PendingStep<Jsonified<Awaited<R>>> {
    refuseNotAwaited(id, args);
    return new PendingStep(this.#replay, runCall(id, fn as (...args: never[]) => unknown, args, this.#maxAttempts));
  }
}

/** A step begins when it is awaited, and the function of another one is no place for that: it would wait for itself. */
function refuseNotAwaited(id: string, args: readonly unknown[]): void {
  for (const arg of args) {
    const name = PendingStep.nameOfNotAwaited(arg);
    if (name === null) continue;
    throw new StepArgumentError(
      `step ${shown(name)} was not awaited: await it before its result is given to step ${shown(id)}`,
    );
  }
}

/** The steps of a workflow. Each id is a stable name within it. Steps started together run in call order. */
export class Step<Events extends EventMap = Record<string, Record<string, any>>> extends StepRunner {
  readonly #replay: Replay;

  constructor(replay: Replay) {
    super(replay);
    this.#replay = replay;
  }

  /** Options of one `run`: `step.options({ retries: 0 }).run(id, fn)` makes retries + 1 attempts. */
  options(options: { retries: number }): StepRunner {
    return new StepRunner(this.#replay, maxAttemptsOf(options));
  }

  /** Sleeps without holding anything; zero goes on at once. */
  sleep(id: string, duration: Duration): PendingStep<null> {
    return new PendingStep(this.#replay, sleepCall(id, duration));
  }

  /** Sleeps until a time; a text without an offset is UTC, a time in the past goes on at once. */
  sleepUntil(id: string, when: Date | string): PendingStep<null> {
    return new PendingStep(this.#replay, sleepUntilCall(id, when));
  }

  /**
   * The next event of that name for which `match` and `if` hold, or null at the timeout (7 days by default).
   *
   * `match: "data.order_id"` means that trigger event and incoming event agree there. Only events that arrive after the
   * wait began count, unless `lookback` says how far back to look (a duration, or "run").
   */
  waitForEvent<const Name extends EventName<Events>>(
    id: string,
    options: {
      event: Name;
      match?: string | undefined;
      if?: string | undefined;
      timeout?: Duration | undefined;
      lookback?: Duration | undefined;
    },
  ): PendingStep<Event<Name, DataOf<Events, Name>> | null> {
    return new PendingStep(this.#replay, waitCall(id, options));
  }

  /** Starts a child run of a workflow of the same project and returns its output; throws InvokeError. */
  invoke<T = unknown>(
    id: string,
    options: { workflow: string; data?: object | undefined; timeout?: Duration | undefined },
  ): PendingStep<T>;
  invoke<W extends Workflow<any, any>>(
    id: string,
    options: { workflow: W; data?: DataOfWorkflow<W> | undefined; timeout?: Duration | undefined },
  ): PendingStep<Jsonified<OutputOfWorkflow<W>>>;
  invoke(
    id: string,
    options: { workflow: string | { name: string }; data?: object | undefined; timeout?: Duration | undefined },
  ): PendingStep<unknown> {
    return new PendingStep(this.#replay, invokeCall(id, options));
  }

  /** Sends one event or a list of up to 100, once; returns their ids. */
  sendEvent(id: string, events: Outgoing<Events> | readonly Outgoing<Events>[]): PendingStep<{ ids: string[] }>;
  // The last one is that of which the compiler tells faults.
  sendEvent(id: string, event: Outgoing<Events>): PendingStep<{ ids: string[] }>;
  sendEvent(id: string, events: Outgoing<Events> | readonly Outgoing<Events>[]): PendingStep<{ ids: string[] }> {
    return new PendingStep(this.#replay, sendCall(id, events));
  }
}
