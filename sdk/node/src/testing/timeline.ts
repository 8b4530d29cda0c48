/** What happened to a run, in order. */

import type { DescribedError } from "../failures.js";

/**
 * One thing that was stored. `status` is that of the step after it, for the run itself (`id` is null) the run's.
 *
 * `op` is the word of the protocol: step_completed, step_failed, sleep, wait_for_event, invoke, send_event,
 * run_completed, run_failed; beside these `crash`, `run_cancelled` and `run_timed_out`. A sleep, wait or invoke is there
 * twice, when it opens and when it ends. `attempt` counts from 1. `at` is virtual time.
 */
export interface Entry {
  readonly at: Date;
  readonly op: string;
  readonly id: string | null;
  readonly status: string;
  readonly attempt: number;
  readonly error: DescribedError | null;
}

/** The entries of a run in order. `String(run.timeline)` shows them, one a line. */
export class Timeline implements Iterable<Entry> {
  readonly entries: Entry[] = [];

  get length(): number {
    return this.entries.length;
  }

  /** [op, id, status] of each entry: what a test mostly asserts. */
  get ops(): [op: string, id: string | null, status: string][] {
    return this.entries.map(({ op, id, status }) => [op, id, status]);
  }

  /** The entries of one step. */
  of(stepId: string): Entry[] {
    return this.entries.filter(({ id }) => id === stepId);
  }

  [Symbol.iterator](): Iterator<Entry> {
    return this.entries[Symbol.iterator]();
  }

  toString(): string {
    return this.entries.map(line).join("\n");
  }
}

function line({ at, op, id, status, attempt, error }: Entry): string {
  const told = error === null ? "" : `  ${error.name}: ${error.message}`;
  const number = attempt > 1 ? ` #${attempt}` : "";
  return `${at.toISOString()}  ${op} ${id ?? ""}${number} -> ${status}${told}`;
}
