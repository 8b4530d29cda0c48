/** The faults of a test: which of them holds for an attempt, and what has hit nothing. */

import { shown } from "../shown.js";
import type { Fault } from "./script.js";
import type { StoredRun, StoredStep } from "./stored.js";

/** Something that a test says and that never came about: it would pass without testing that. */
export class UnusedError extends Error {
  override name = "UnusedError";
}

/** Faults of all runs, and those of single ones. What has hit is known by the fault: each start has copies of its own. */
export class Faults {
  readonly #ofAll: readonly Fault[];
  readonly #hit = new Set<Fault>();
  readonly #unchecked = new Set<StoredRun>();

  constructor(ofAll: readonly Fault[]) {
    this.#ofAll = copies(ofAll);
  }

  /** The fault that holds for the next attempt of a step; undefined: none does. */
  take({ begins, steps }: StoredRun, step: string): Fault | undefined {
    const attempts = steps.get(step)?.attempts.length ?? 0;
    const fault = scripted([...begins.faults, ...this.#ofAll], step, attempts);
    if (fault === undefined) return undefined;
    this.#hit.add(fault);
    // One of the run stands before those of all runs: that these had no turn is no fault of theirs.
    if (begins.faults.includes(fault)) for (const other of this.#ofAll) if (other.step === step) this.#hit.add(other);
    return fault;
  }

  /** A run has begun, whose faults are checked where it ends. */
  expect(run: StoredRun): void {
    this.#unchecked.add(run);
  }

  /** Checks the faults of runs that have ended, with all that they have invoked. Throws UnusedError. */
  checkEnded(): void {
    for (const run of this.#unchecked) {
      if (!family(run).every(({ ended }) => ended)) continue;
      this.#unchecked.delete(run);
      this.#check(run.begins.faults, family(run));
    }
  }

  /** Checks all faults; `unsent` are steps in which runs should wait before an event is sent. Throws UnusedError. */
  check(runs: readonly StoredRun[], unsent: readonly string[]): void {
    for (const run of this.#unchecked) this.#check(run.begins.faults, family(run));
    this.#check(this.#ofAll, runs);
    if (unsent.length > 0) throw new UnusedError(unsent.map((step) => whyUnsent(step, runs)).join("; "));
  }

  #check(faults: readonly Fault[], runs: readonly StoredRun[]): void {
    const unused = faults.filter((fault) => fault.times !== 0 && !this.#hit.has(fault));
    if (unused.length === 0) return;
    const failed = runs.filter(({ error }) => error !== null).map((run) => `; ${run.workflow} is ${told(run)}`);
    throw new UnusedError(unused.map(({ step }) => whyUnused(step, runs)).join("; ") + failed.join(""));
  }
}

/** Faults that are known apart from others, also from the same ones that another run is started with. */
export function copies(faults: readonly Fault[]): Fault[] {
  return faults.map(({ step, times, body }) => ({ step, times, body }));
}

/** A run, those that it has invoked, and so on. */
function family(run: StoredRun): StoredRun[] {
  const found = new Set([run]);
  for (const each of found) for (const child of each.children) found.add(child);
  return [...found];
}

/** Why an event was never sent that waits for a run to wait in a step. */
function whyUnsent(step: string, runs: readonly StoredRun[]): string {
  const waited = listed(runs, ({ kind }) => kind === "wait_for_event");
  return `the event that is sent when a run waits in ${shown(step)} was not sent: no run waited in it; they waited in ${waited}`;
}

function whyUnused(step: string, runs: readonly StoredRun[]): string {
  const start = `a fault of step ${shown(step)} hit nothing`;
  const found = runs.flatMap((run) => run.steps.get(step) ?? []);
  const other = found.find(({ kind }) => kind !== "run");
  if (other?.kind === "invoke") {
    const { workflow } = (other.input ?? {}) as { workflow?: string };
    return (
      `${start}: it is an invoke, and faults stand for functions of step.run; what is invoked is stood in for by` +
      ` new TestEngine(app, { stubs: { ${shown(workflow ?? "name")}: … } })`
    );
  }
  if (other !== undefined) return `${start}: it is a ${other.kind}, and faults stand for functions of step.run`;
  if (runs.some(({ executed }) => executed.has(step))) {
    const most = Math.max(...found.map(({ attempts }) => attempts.length));
    return `${start}: there were ${most} attempts, and its turn did not come`;
  }
  return `${start}: no function of such a step was executed; there are ${listed(runs, ({ kind }) => kind === "run")}`;
}

/** Ids of steps, by workflow. */
function listed(runs: readonly StoredRun[], isMeant: (step: StoredStep) => boolean): string {
  const byWorkflow = new Map<string, Set<string>>();
  for (const { workflow, steps } of runs) {
    const ids = byWorkflow.get(workflow) ?? new Set();
    for (const step of steps.values()) if (isMeant(step)) ids.add(step.id);
    if (ids.size > 0) byWorkflow.set(workflow, ids);
  }
  const parts = [...byWorkflow].map(([workflow, ids]) => `${[...ids].map((id) => shown(id)).join(", ")} in ${workflow}`);
  return parts.join(", ") || "none";
}

function told({ status, error }: StoredRun): string {
  return `${status}: ${error?.name}: ${error?.message}`;
}

/** Of several faults for one step, the next begins where the one before ends. */
function scripted(faults: readonly Fault[], step: string, attempts: number): Fault | undefined {
  let left = attempts;
  for (const fault of faults) {
    if (fault.step !== step) continue;
    if (fault.times === null || left < fault.times) return fault;
    left -= fault.times;
  }
  return undefined;
}
