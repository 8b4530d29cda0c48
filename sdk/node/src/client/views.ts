/** What the API answers, in its own words: names are those of the REST API. */

export type RunStatus =
  "queued" | "running" | "sleeping" | "waiting" | "completed" | "failed" | "cancelled" | "timed_out";
export type RunSource = "api" | "event" | "cron" | "queue" | "invoke" | "replay";

/** What a run, step or attempt failed with. */
export interface Failure {
  readonly name: string;
  readonly message: string;
  readonly stack?: string | null;
}

/**
 * One attempt of a step or of the function; `error` is null for the one that succeeded. Times are ISO-8601. `step_id` of
 * one of the function is the step that it was in, where that is known (`WorkerLost`).
 */
export interface Attempt {
  readonly attempt: number;
  readonly error: Failure | null;
  readonly step_id: string | null;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly warning: string | null;
}

/** One step of a run, in step order. `timed_out`: it waited for an event until its time was up, and its output is null. */
export interface RunStep {
  readonly id: string;
  readonly name: string;
  readonly kind: string;
  readonly status: "completed" | "failed" | "retrying" | "sleeping" | "waiting" | "cancelled";
  readonly output: unknown;
  readonly error: Failure | null;
  readonly input: unknown;
  readonly attempts: readonly Attempt[];
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly wake_at: string | null;
  readonly wait: {
    readonly event: string | null;
    readonly condition: string | null;
    readonly timeout_at: string | null;
    readonly warnings: readonly string[];
  } | null;
  readonly child_run_id: string | null;
  readonly timed_out: boolean;
}

/** Why a run does not go on, for programs and for people. */
export interface RunWait {
  readonly kind: "executor" | "worker" | "slot" | "retry" | "start" | "answer";
  readonly message: string;
}

/** A run. In lists, and in the answers of start, cancel, retry and replay, `event` and `output` are null. */
export interface Run<Output = unknown> {
  readonly id: string;
  readonly workflow: string;
  readonly project: string;
  readonly status: RunStatus;
  readonly source: RunSource;
  readonly test: boolean;
  readonly attempt: number;
  readonly tags: readonly string[];
  readonly idempotency_key: string | null;
  readonly parent_run_id: string | null;
  readonly replay_of_run_id: string | null;
  readonly created_at: string | null;
  readonly started_at: string | null;
  readonly ended_at: string | null;
  readonly due_at: string | null;
  readonly timeout_at: string | null;
  readonly event: { readonly id: string; readonly name: string; readonly data: any; readonly ts: number } | null;
  readonly output: Output | null;
  readonly error: Failure | null;
  readonly attempts: readonly Attempt[];
  readonly trace_id: string | null;
  /** Null for a run that goes on, and in the answers of start, cancel, retry and replay. */
  readonly waiting_for: RunWait | null;
}

/** A run with its steps and the runs that it has invoked. */
export interface RunDetail<Output = unknown> extends Run<Output> {
  readonly steps: readonly RunStep[];
  readonly children: readonly {
    readonly id: string;
    readonly workflow: string;
    readonly step_id: string;
    readonly status: RunStatus;
  }[];
}

/** What one event of a request came to. `duplicate`: its id was known, nothing was done again. */
export interface SentEvent {
  readonly id: string;
  readonly name: string;
  readonly duplicate: boolean;
  readonly runs: readonly string[];
  readonly resumed: number;
  readonly cancelled: number;
}

/** A stored event with what it did. In lists `data` is null. */
export interface StoredEvent {
  readonly id: string;
  readonly name: string;
  readonly data: any;
  readonly ts: number;
  readonly event_id: string | null;
  readonly source: string;
  readonly project: string | null;
  readonly run_id: string | null;
  readonly test: boolean;
  readonly received_at: string | null;
  readonly runs: readonly string[];
  readonly resumed: number;
  readonly cancelled: number;
  readonly started: number;
  readonly resumed_runs: readonly string[];
  readonly cancelled_runs: readonly string[];
  readonly skipped: readonly {
    readonly workflow: string;
    readonly project: string;
    readonly reason: string;
    readonly run_id: string | null;
  }[];
  readonly trace_id: string | null;
}
