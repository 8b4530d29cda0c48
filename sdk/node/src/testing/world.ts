/** The runs of the kit's engine: how they start, rest, go on and end (engine section 5). */

import type { Event } from "../event.js";
import type { DescribedError } from "../failures.js";
import type { Declared } from "./declared.js";
import { copies } from "./faults.js";
import { ulid } from "./ids.js";
import { keyOf } from "../rules/json-values.js";
import type { Fault } from "./script.js";
import { type RunStatus, StoredRun, type StoredStep } from "./stored.js";
import type { Timers } from "./timers.js";

export const MAX_STEPS = 10_000;
export const DEFAULT_WAIT_MS = 7 * 86_400_000;
export const OUTPUT_BYTES = 1024 * 1024;

const TIMEOUT_ERROR = { name: "RunTimeout", message: "the run did not end within its timeout" };
const INVOKE_TIMEOUT = {
  name: "InvokeTimeout",
  message: "the invoked workflow did not end within the timeout of the step",
};

/** How a run is started, beside its workflow and event. */
export interface Start {
  readonly source: string;
  readonly dueMs?: number | null;
  readonly idempotencyKey?: string | undefined;
  readonly parent?: StoredRun;
  readonly faults?: readonly Fault[] | undefined;
}

/** What a line of a timeline tells beside its op, step and status. */
interface Told {
  readonly attempt?: number;
  readonly error?: DescribedError | null;
}

/** All runs, and the queue of those that have something to execute. `ended` is told of each end. */
export class World {
  readonly runs: StoredRun[] = [];
  readonly ready: StoredRun[] = [];
  ended: (run: StoredRun) => void = () => undefined;
  readonly #keys = new Map<string, StoredRun>();

  constructor(
    readonly workflows: ReadonlyMap<string, Declared>,
    readonly timers: Timers,
  ) {}

  /** Virtual time, unix milliseconds. */
  get nowMs(): number {
    return this.timers.nowMs;
  }

  /** A run, and whether it is new: the one that the idempotency key has is answered instead. */
  start(workflow: Declared, event: Event, how: Start): { run: StoredRun; isNew: boolean } {
    const given = how.idempotencyKey ?? workflow.idempotency?.(event, null) ?? null;
    const key = given === null ? null : JSON.stringify([workflow.name, keyOf(given)]);
    const before = key === null ? undefined : this.#keys.get(key);
    if (before !== undefined) return { run: before, isNew: false };
    const beginsMs = Math.max(this.nowMs, how.dueMs ?? 0);
    const run = new StoredRun({
      id: ulid(`run ${this.runs.length}`),
      workflow: workflow.name,
      event,
      source: how.source,
      createdMs: this.nowMs,
      dueMs: beginsMs,
      deadlineMs: beginsMs + workflow.timeoutMs,
      maxAttempts: workflow.maxAttempts,
      faults: how.parent?.begins.faults ?? copies(how.faults ?? []),
      parent: how.parent ?? null,
      idempotencyKey: how.idempotencyKey ?? null,
    });
    this.runs.push(run);
    if (key !== null) this.#keys.set(key, run);
    this.timers.at(run.begins.deadlineMs, () => this.#timesOut(run), { isFirst: true });
    if (beginsMs > this.nowMs) this.timers.at(beginsMs, () => this.goOn(run));
    else this.goOn(run);
    return { run, isNew: true };
  }

  /** The run is to be executed. */
  goOn(run: StoredRun): void {
    if (run.ended || this.ready.includes(run)) return;
    run.status = "queued";
    this.ready.push(run);
  }

  /** Writes a line of the run's timeline. */
  tell(run: StoredRun, op: string, id: string | null, status: string, { attempt = 1, error = null }: Told = {}): void {
    run.timeline.entries.push({ at: new Date(this.nowMs), op, id, status, attempt, error });
  }

  /** The next attempt is made at this time: at once, where that has passed. */
  pause(run: StoredRun, untilMs: number): void {
    run.status = "queued";
    this.timers.at(untilMs, () => this.goOn(run));
  }

  /** The run sleeps or waits in a new step; at `dueMs` the step has completed, or the wait is over. */
  open(run: StoredRun, step: StoredStep, status: "sleeping" | "waiting", dueMs: number): void {
    step.status = run.status = status;
    step.startedMs = this.nowMs;
    run.steps.set(step.id, step);
    this.tell(run, step.kind, step.id, status);
    this.timers.at(dueMs, () => {
      if (run.openStep === step) this.deliver(run, step, null, step.kind === "invoke" ? INVOKE_TIMEOUT : null);
    });
  }

  /** An open step has its result. */
  deliver(run: StoredRun, step: StoredStep, output: unknown, error: DescribedError | null = null): void {
    step.status = error === null ? "completed" : "failed";
    Object.assign(step, { output, error, endedMs: this.nowMs, wait: null, wakeMs: null, holds: null });
    this.tell(run, step.kind, step.id, step.status, { error });
    this.goOn(run);
  }

  /** The run has ended: its waits are closed, its parent hears of it, active children of a cut off run end too. */
  end(run: StoredRun, status: RunStatus, told: Told = {}): void {
    for (const step of run.steps.values()) {
      if (step.status === "completed" || step.status === "failed") continue;
      Object.assign(step, { status: "cancelled", wait: null, wakeMs: null, holds: null, endedMs: this.nowMs });
    }
    Object.assign(run, { status, error: told.error ?? null, endedMs: this.nowMs });
    this.tell(run, `run_${status}`, null, status, told);
    const place = this.ready.indexOf(run);
    if (place >= 0) this.ready.splice(place, 1);
    for (const waiting of this.runs) {
      const step = waiting.openStep;
      if (step?.child === run.id) this.childEnded(waiting, step, run);
    }
    if (status === "cancelled" || status === "timed_out") {
      for (const child of run.children) if (child.begins.parent === run && !child.ended) this.end(child, "cancelled");
    }
    this.ended(run);
  }

  /** What a run gets that waits for a child which has ended. */
  childEnded(run: StoredRun, step: StoredStep, child: StoredRun): void {
    if (child.status === "completed") {
      this.deliver(run, step, child.stored);
      return;
    }
    const why = child.error === null ? "" : `: ${child.error.message}`;
    this.deliver(run, step, null, { name: "InvokeError", message: `the invoked run ${child.status}${why}` });
  }

  /** Whether a run waits for another one, also through others, or is it. */
  waitsFor(run: StoredRun, other: StoredRun): boolean {
    const seen = new Set<StoredRun>();
    let found: StoredRun | undefined = run;
    while (found !== undefined && found !== other && !seen.has(found)) {
      seen.add(found);
      const child: string | null | undefined = found.openStep?.child;
      found = child == null ? undefined : this.runs.find(({ id }) => id === child);
    }
    return found === other;
  }

  #timesOut(run: StoredRun): void {
    if (!run.ended) this.end(run, "timed_out", { error: TIMEOUT_ERROR });
  }
}
