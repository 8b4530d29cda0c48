/** What the engine of the kit has stored of a run. */

import type { Event } from "../event.js";
import type { DescribedError } from "../failures.js";
import type { Expression } from "../rules/expression.js";
import type { Fault } from "./script.js";
import { Timeline } from "./timeline.js";

/** Statuses of a run that has ended. */
export const ENDED = ["completed", "failed", "cancelled", "timed_out"];

export type RunStatus =
  "queued" | "running" | "sleeping" | "waiting" | "completed" | "failed" | "cancelled" | "timed_out";

/** One attempt of a step or of the function. */
export interface StoredAttempt {
  readonly attempt: number;
  readonly error: DescribedError | null;
  readonly step_id: string | null;
  readonly started_at: string;
  readonly ended_at: string;
  readonly warning: string | null;
}

/** A step of a run. `wakeMs`, `wait` and `holds` belong to one that is open; `child` stays. */
export interface StoredStep {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  status: "completed" | "failed" | "retrying" | "sleeping" | "waiting" | "cancelled";
  output: unknown;
  error: DescribedError | null;
  input: unknown;
  readonly attempts: StoredAttempt[];
  startedMs: number;
  endedMs: number | null;
  wakeMs: number | null;
  wait: { event: string | null; condition: string | null; timeout_at: string; warnings: string[] } | null;
  child: string | null;
  holds: Expression | null;
}

/** A run of the kit. */
export interface TestRun<Output = any> {
  readonly id: string;
  readonly workflow: string;
  readonly event: Event;
  readonly source: string;
  readonly status: RunStatus;
  /** What the run has completed with, decoded by the middleware; null before. */
  readonly output: Output | null;
  readonly error: DescribedError | null;
  /** Whether the run has ended. */
  readonly ended: boolean;
  readonly timeline: Timeline;
  /** The steps by their ids, in order, as they are stored. */
  readonly steps: ReadonlyMap<string, Readonly<StoredStep>>;
  /** Failed attempts of the function. */
  readonly attempts: readonly StoredAttempt[];
  /** How often the function of each step was executed, also where a crash lost what came of it. */
  readonly executed: ReadonlyMap<string, number>;
  readonly children: readonly TestRun[];
  /** The run as `GET /runs/{id}` answers it, which is what `replay` takes. */
  readonly history: History;
}

/** A run with its steps, as `GET /runs/{id}` answers it; what is not here may be left out. */
export interface History {
  readonly id: string;
  readonly workflow: string;
  readonly status: string;
  readonly source?: string;
  readonly test?: boolean;
  readonly started_at?: string | null;
  readonly parent_run_id?: string | null;
  readonly event: { readonly id: string; readonly name: string; readonly data: any; readonly ts: number } | null;
  readonly output: unknown;
  readonly error: { readonly name: string; readonly message: string } | null;
  readonly steps: readonly {
    readonly id: string;
    readonly kind: string;
    readonly status: string;
    readonly output: unknown;
    readonly error: unknown;
  }[];
}

/** What a run begins with. */
export interface RunBegins {
  readonly id: string;
  readonly workflow: string;
  readonly event: Event;
  readonly source: string;
  readonly createdMs: number;
  readonly dueMs: number;
  readonly deadlineMs: number;
  readonly maxAttempts: number;
  /** Of this run, or of the one that has invoked it. */
  readonly faults: readonly Fault[];
  readonly parent: StoredRun | null;
  readonly idempotencyKey: string | null;
}

/** A run, with what the engine needs to know of it. */
export class StoredRun implements TestRun {
  status: RunStatus = "queued";
  output: any = null;
  /** As the function has answered it. */
  stored: unknown = null;
  error: DescribedError | null = null;
  startedMs: number | null = null;
  endedMs: number | null = null;
  readonly steps = new Map<string, StoredStep>();
  readonly timeline = new Timeline();
  readonly attempts: StoredAttempt[] = [];
  readonly executed = new Map<string, number>();
  /** Of these, executions whose answer never arrived. */
  readonly lost = new Map<string, number>();
  readonly children: StoredRun[] = [];
  /** Failed attempts of the function in a row. */
  failures = 0;
  /** Answers in a row that held nothing new. */
  repeats = 0;
  oneByOneUntil = 0;
  /** Ids of the events that the run has been given: a look back does not give them again. */
  readonly given: Set<string>;

  constructor(readonly begins: RunBegins) {
    this.given = new Set([begins.event.id]);
  }

  get id(): string {
    return this.begins.id;
  }

  get workflow(): string {
    return this.begins.workflow;
  }

  get event(): Event {
    return this.begins.event;
  }

  get source(): string {
    return this.begins.source;
  }

  get ended(): boolean {
    return ENDED.includes(this.status);
  }

  /** `run.attempt` of the next request. */
  get attempt(): number {
    const failing = [...this.steps.values()].find(({ status }) => status === "retrying");
    return failing?.attempts.length ?? this.failures;
  }

  /** How many steps have a place: those with a result, and the one that is open. */
  get placed(): number {
    return [...this.steps.values()].filter(({ status }) => status !== "retrying").length;
  }

  /** The step that the run sleeps or waits in. */
  get openStep(): StoredStep | undefined {
    return [...this.steps.values()].find(({ status }) => status === "sleeping" || status === "waiting");
  }

  /** The results, as `steps` of an execute request holds them. */
  get memo(): [id: string, result: object][] {
    return [...this.steps.values()].flatMap(({ id, status, output, error }): [string, object][] => {
      if (status === "completed") return [[id, { status, output }]];
      return status === "failed" ? [[id, { status, error }]] : [];
    });
  }

  get history(): History {
    const { idempotencyKey, parent, createdMs, dueMs, deadlineMs } = this.begins;
    const steps = [...this.steps.values()];
    const history = {
      id: this.id,
      workflow: this.workflow,
      project: "default",
      status: this.status,
      source: this.source,
      test: true,
      attempt: this.attempt,
      tags: [],
      idempotency_key: idempotencyKey,
      parent_run_id: parent?.id ?? null,
      replay_of_run_id: null,
      created_at: timeText(createdMs),
      started_at: timeText(this.startedMs),
      ended_at: timeText(this.endedMs),
      due_at: dueMs === createdMs ? null : timeText(dueMs),
      timeout_at: timeText(deadlineMs),
      event: this.event,
      output: this.stored,
      error: this.error,
      attempts: this.attempts,
      trace_id: null,
      waiting_for: null,
      steps: steps.map(stepView),
      children: steps.flatMap((step) => {
        const child = this.children.find(({ id }) => id === step.child);
        return child === undefined
          ? []
          : [{ id: child.id, workflow: child.workflow, step_id: step.id, status: child.status }];
      }),
    };
    // Through JSON, as over the API: what is asked for later must not be changed by what happens next.
    return JSON.parse(JSON.stringify(history)) as History;
  }
}

/** Unix milliseconds as the REST API writes times. */
export function timeText(unixMs: number): string;
export function timeText(unixMs: number | null): string | null;
export function timeText(unixMs: number | null): string | null {
  return unixMs === null ? null : new Date(unixMs).toISOString();
}

function stepView(step: StoredStep): object {
  const { id, name, kind, status, output, error, input, attempts, wait } = step;
  const times = {
    started_at: timeText(step.startedMs),
    ended_at: timeText(step.endedMs),
    wake_at: timeText(step.wakeMs),
  };
  const timed_out = kind === "wait_for_event" && status === "completed" && output === null;
  return { id, name, kind, status, output, error, input, attempts, ...times, wait, child_run_id: step.child, timed_out };
}
