/** Events of the kit's engine: each cancels, resumes and starts, in this order (engine section 6). */

import type { Event } from "../event.js";
import { typeName } from "../shown.js";
import { encode } from "../values.js";
import type { Declared } from "./declared.js";
import type { Expression } from "../rules/expression.js";
import { ulid } from "./ids.js";
import { isTrue } from "../rules/json-values.js";
import type { StoredRun, StoredStep, TestRun } from "./stored.js";
import { RUN_ENDS } from "../rules/event-names.js";
import type { World } from "./world.js";

/** What an event came to: the runs that it started, and how many it resumed and cancelled. */
export interface Sent {
  readonly id: string;
  readonly name: string;
  readonly duplicate: boolean;
  readonly runs: readonly TestRun[];
  readonly resumed: number;
  readonly cancelled: number;
}

/** What was received, and who listens. */
export class Events {
  readonly #received: { event: Event; atMs: number }[] = [];
  readonly #byKey = new Map<string, Sent>();

  constructor(private readonly world: World) {}

  /** An event that is received now. Throws SerializationError, or TypeError for data that is no object. */
  make(name: string, data: unknown, seed: string, ts?: number): Event {
    const plain: unknown = JSON.parse(encode(data ?? {}, "data"));
    if (typeof plain !== "object" || plain === null || Array.isArray(plain)) {
      throw new TypeError(`data is an object, not ${Array.isArray(plain) ? "an array" : typeName(plain)}`);
    }
    return { id: ulid(seed), name, data: plain, ts: ts ?? this.world.nowMs };
  }

  /**
   * All effects of an event. One whose key was used is answered with what the first came to. `passed` are workflows that
   * it does not start.
   */
  accept(event: Event, key: string | null, passed: readonly string[] = []): Sent {
    const first = key === null ? undefined : this.#byKey.get(key);
    if (first !== undefined) return { ...first, duplicate: true };
    this.#received.push({ event, atMs: this.world.nowMs });
    const active = this.world.runs.filter(({ ended }) => !ended);
    const sent = {
      id: event.id,
      name: event.name,
      duplicate: false,
      cancelled: this.#cancel(event, active),
      resumed: this.#resume(event, active),
      runs: this.#start(event, passed),
    };
    if (key !== null) this.#byKey.set(key, sent);
    return sent;
  }

  /**
   * A wait has been opened, and looks back to `sinceMs` if that is given. Whether an event of before has resumed it.
   */
  wait(run: StoredRun, step: StoredStep, holds: Expression, sinceMs: number | null): boolean {
    step.holds = holds;
    const found = this.#received.find(
      ({ event, atMs }) => sinceMs !== null && atMs >= sinceMs && !run.given.has(event.id) && resumes(event, run, step),
    );
    if (found !== undefined) this.#give(run, step, found.event);
    return found !== undefined;
  }

  /** The end of a run is an event, if anyone listens to it. */
  runEnded(run: StoredRun): void {
    const name = `runr/run.${run.status}`;
    if (!this.#isHeard(name)) return;
    const before = (RUN_ENDS.includes(run.event.name) ? run.event.data["lineage"] : undefined) as string[] | undefined;
    const lineage = [...(before ?? []), `default/${run.workflow}`];
    const data = {
      run_id: run.id,
      workflow: run.workflow,
      project: "default",
      status: run.status,
      event: { id: run.event.id, name: run.event.name },
      lineage,
      ...(run.error === null ? {} : { error: run.error }),
      ...(run.status === "completed" ? { output: run.stored } : {}),
    };
    const passed = lineage.map((each) => each.slice(each.indexOf("/") + 1));
    this.accept(this.make(name, data, `end of ${run.id}`), null, passed);
  }

  #cancel(event: Event, active: readonly StoredRun[]): number {
    let cancelled = 0;
    for (const run of active) {
      if (run.ended || !this.#cancels(event, run)) continue;
      this.world.end(run, "cancelled");
      cancelled += 1;
    }
    return cancelled;
  }

  #resume(event: Event, active: readonly StoredRun[]): number {
    let resumed = 0;
    for (const run of active) {
      const step = run.openStep;
      if (step === undefined || !resumes(event, run, step)) continue;
      this.#give(run, step, event);
      resumed += 1;
    }
    return resumed;
  }

  #start(event: Event, passed: readonly string[]): StoredRun[] {
    const heard = ({ triggers }: Declared): boolean =>
      triggers.some((each) => each.event === event.name && isTrue(each.holds(event, null)));
    return [...this.world.workflows.values()]
      .filter((workflow) => heard(workflow) && !passed.includes(workflow.name))
      .map((workflow) => this.world.start(workflow, event, { source: "event" }).run);
  }

  #cancels(event: Event, run: StoredRun): boolean {
    const { dueMs } = run.begins;
    return (this.world.workflows.get(run.workflow)?.cancelOn ?? []).some(
      ({ event: name, holds, timeoutMs }) =>
        name === event.name &&
        (timeoutMs === null || this.world.nowMs < dueMs + timeoutMs) &&
        isTrue(holds(run.event, event)),
    );
  }

  #isHeard(name: string): boolean {
    const workflows = [...this.world.workflows.values()];
    if (workflows.some(({ triggers, cancelOn }) => [...triggers, ...cancelOn].some(({ event }) => event === name))) {
      return true;
    }
    return this.world.runs.some(({ openStep }) => openStep?.wait?.event === name);
  }

  #give(run: StoredRun, step: StoredStep, event: Event): void {
    run.given.add(event.id);
    this.world.deliver(run, step, { ...event });
  }
}

function resumes(event: Event, run: StoredRun, step: StoredStep): boolean {
  return step.holds !== null && step.wait?.event === event.name && isTrue(step.holds(run.event, event));
}
