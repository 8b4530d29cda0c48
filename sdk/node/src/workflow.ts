/** A workflow: its options as types, its definition, its function (engine section 1). */

import type { Context } from "./context.js";
import type { Duration } from "./errors.js";
import type { DataOf, Event, EventMap } from "./event.js";
import type { Step } from "./step.js";

/** Starts a run for each event of that name for which `if` holds. */
export interface EventTrigger<Name extends string = string> {
  event: Name;
  if?: string | undefined;
}

/** Starts a run at each fire time of the cron line, UTC unless a zone is given. */
export interface CronTrigger {
  cron: string;
  timezone?: string | undefined;
  catchUp?: "latest" | "all" | "none" | undefined;
}

/** Starts a run for each message of the queue stream. */
export interface QueueTrigger {
  queue: string;
}

export type Trigger<Name extends string = string> = EventTrigger<Name> | CronTrigger | QueueTrigger;

/** At most `limit` executing runs, for each value of the expression `key` if there is one. */
export interface Concurrency {
  limit: number;
  key?: string | undefined;
}

/** An event that cancels active runs: those that agree with it at `match` and for which `if` holds. */
export interface CancelOn<Name extends string = string> {
  event: Name;
  match?: string | undefined;
  if?: string | undefined;
  timeout?: Duration | undefined;
}

/**
 * Several steps in one answer: up to `maxSteps` results, of steps that begin within `maxTime` (5 s by default).
 *
 * A crash executes up to `maxSteps` steps again.
 */
export interface Checkpoint {
  maxSteps: number;
  maxTime?: Duration | undefined;
}

/** The options of a workflow; what is left out has the engine's default. */
export interface WorkflowOptions<
  Name extends string = string,
  Triggers extends readonly Trigger[] = readonly Trigger[],
> {
  triggers?: Triggers | undefined;
  retries?: number | undefined;
  timeout?: Duration | undefined;
  concurrency?: number | Concurrency | readonly (number | Concurrency)[] | undefined;
  idempotency?: string | undefined;
  cancelOn?: readonly CancelOn<Name>[] | undefined;
  checkpoint?: Checkpoint | undefined;
  description?: string | undefined;
}

/** The data of a `runr/cron` event. */
export interface CronData {
  cron: string;
  timezone: string | null;
  scheduled_at: string;
  trigger: number;
}

/** The events that start a workflow with these triggers. Started over the API, it has the data it is started with. */
export type TriggerEvent<Events extends EventMap, Triggers extends readonly Trigger[]> = [Triggers[number]] extends [
  never,
]
  ? Event
  : EventOf<Events, Triggers[number]>;

type EventOf<Events extends EventMap, One> = One extends { event: infer Name extends string }
  ? Event<Name, DataOf<Events, Name>>
  : One extends { cron: string }
    ? Event<"runr/cron", CronData>
    : One extends { queue: infer Stream extends string }
      ? Event<`queue/${Stream}`>
      : never;

/** The code of a workflow. */
export type WorkflowFunction<Events extends EventMap, E, Output> = (
  ctx: Context<E>,
  step: Step<Events>,
) => Output | Promise<Output>;

declare const types: unique symbol;

/** A registered workflow: what `wf.workflow` returns, for `step.invoke`. */
export interface Workflow<Data = any, Output = any> {
  readonly name: string;
  /** As the introspect answer holds it. */
  readonly definition: Readonly<Record<string, unknown>>;
  readonly fn: WorkflowFunction<any, any, Output>;
  readonly [types]?: Data;
}

export type DataOfWorkflow<W> = W extends Workflow<infer Data, any> ? Data : never;
export type OutputOfWorkflow<W> = W extends Workflow<any, infer Output> ? Output : never;
