/** What the ops of one answer do to a run, in order (protocol section 3, engine section 5). */

import type { DescribedError } from "../failures.js";
import type { Events } from "./events.js";
import { listenerFault, senderFault } from "../rules/event-names.js";
import { condition, parse, parseMatch } from "../rules/expression.js";
import { BadField, type Op, checked, durationOf, payload, retryAt, shownCondition } from "./op-fields.js";
import { type StoredAttempt, type StoredRun, type StoredStep, timeText } from "./stored.js";
import { DEFAULT_WAIT_MS, MAX_STEPS, type World } from "./world.js";

/** Stands for an invoked workflow: its output for the data, or what it throws. */
export type Stub = (data: any) => unknown;

/** What the answers need of the engine around them. */
export interface AnswersParts {
  readonly world: World;
  readonly events: Events;
  readonly stubs: ReadonlyMap<string, Stub>;
  /** What a stub has made, or a run completes with, decoded or encoded by the middleware. */
  readonly encode: (output: unknown) => Promise<unknown>;
  readonly decode: (output: unknown) => Promise<unknown>;
  /** Told of each wait that has been opened. */
  readonly waits: (step: StoredStep) => void;
}

const MOST_REPEATS = 3;
const WORKFLOW = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;

/** Applies answers. */
export class Answers {
  readonly #parts: AnswersParts;
  readonly #world: World;

  constructor(parts: AnswersParts) {
    this.#parts = parts;
    this.#world = parts.world;
  }

  /** The ops of one answer. */
  async apply(run: StoredRun, ops: readonly Op[]): Promise<void> {
    const fresh = ops.filter(({ id }) => id === undefined || !isMemoized(run.steps.get(id)));
    if (fresh.length === 0) {
      this.#strike(run, ops[0]?.["id"]);
      return;
    }
    run.repeats = 0;
    for (const op of fresh) {
      if (op["op"] === "run_completed") {
        await this.#completed(run, op);
        return;
      }
      if (op["op"] === "run_failed") {
        this.functionFailed(run, op["error"], op);
        return;
      }
      if (!run.steps.has(op["id"]) && run.placed >= MAX_STEPS) {
        const message = `step "${op["id"]}" would be number ${MAX_STEPS + 1} and a run has at most ${MAX_STEPS} steps`;
        this.#fail(run, { name: "LimitExceeded", message });
        return;
      }
      if (!(await this.#step(run, op))) return;
    }
    this.#world.goOn(run);
  }

  /** A failed attempt of the function. `told` is what the timeline calls it. */
  functionFailed(run: StoredRun, error: DescribedError, op: Op = {}, told = "run_failed"): void {
    run.failures += 1;
    const number = run.failures;
    run.attempts.push(this.#attempt(number, error));
    const isFinal = op["non_retriable"] === true || number >= run.begins.maxAttempts;
    if (!isFinal || told !== "run_failed") {
      this.#world.tell(run, told, null, isFinal ? "failed" : "queued", { attempt: number, error });
    }
    if (isFinal) this.#world.end(run, "failed", { error, attempt: number });
    else this.#world.pause(run, retryAt(op, number, this.#world.nowMs));
  }

  /** Applies the op of a step. Whether the run goes on at once, with the next op or another invocation. */
  async #step(run: StoredRun, op: Op): Promise<boolean> {
    const step = this.#stepOf(run, op);
    if (op["op"] === "step_failed") return this.#stepFailed(run, step, op);
    run.failures = 0;
    try {
      return await this.#applied(run, step, op);
    } catch (fault) {
      if (!(fault instanceof BadField)) throw fault;
      const message = `${op["op"]} ${JSON.stringify(op["id"])}: ${fault.message}`;
      this.#store(run, step, op["op"], null, { name: fault.kind, message });
      this.#world.goOn(run);
      return false;
    }
  }

  async #applied(run: StoredRun, step: StoredStep, op: Op): Promise<boolean> {
    switch (op["op"]) {
      case "sleep":
        return this.#sleep(run, step, op);
      case "wait_for_event":
        return this.#wait(run, step, op);
      case "invoke":
        return this.#invoke(run, step, op);
      case "send_event":
        return this.#send(run, step, op);
      default: {
        const output = payload(op["output"], "output");
        step.attempts.push(this.#attempt(step.attempts.length + 1, null, step.id));
        this.#store(run, step, "step_completed", output);
        return true;
      }
    }
  }

  #stepOf(run: StoredRun, op: Op): StoredStep {
    const kind = op["op"] === "step_completed" || op["op"] === "step_failed" ? "run" : op["op"];
    const found = run.steps.get(op["id"]) ?? {
      id: op["id"],
      name: op["name"],
      kind,
      status: "completed",
      output: null,
      error: null,
      input: null,
      attempts: [],
      startedMs: this.#world.nowMs,
      endedMs: null,
      wakeMs: null,
      wait: null,
      child: null,
      holds: null,
    };
    found.input = op["input"] ?? found.input;
    return found;
  }

  /** A step has its result. */
  #store(run: StoredRun, step: StoredStep, op: string, output: unknown, error: DescribedError | null = null): void {
    run.steps.set(step.id, step);
    step.status = error === null ? "completed" : "failed";
    Object.assign(step, { output, error, endedMs: this.#world.nowMs, wakeMs: null });
    this.#world.tell(run, op, step.id, step.status, { attempt: Math.max(step.attempts.length, 1), error });
  }

  #stepFailed(run: StoredRun, step: StoredStep, op: Op): boolean {
    const error = op["error"] as DescribedError;
    const number = step.attempts.length + 1;
    step.attempts.push(this.#attempt(number, error, step.id));
    if (op["non_retriable"] === true || number >= (op["max_attempts"] ?? run.begins.maxAttempts)) {
      run.failures = 0;
      this.#store(run, step, "step_failed", null, error);
      return true;
    }
    run.steps.set(step.id, step);
    step.status = "retrying";
    step.wakeMs = retryAt(op, number, this.#world.nowMs);
    this.#world.tell(run, "step_failed", step.id, "retrying", { attempt: number, error });
    this.#world.pause(run, step.wakeMs);
    return false;
  }

  #sleep(run: StoredRun, step: StoredStep, op: Op): boolean {
    const { nowMs } = this.#world;
    const until = op["until"] == null ? null : Date.parse(op["until"]);
    const dueMs = until ?? nowMs + (durationOf(op, "duration") ?? 0);
    step.input = until === null ? { duration_ms: dueMs - nowMs } : { until_ms: until };
    if (dueMs <= nowMs) {
      this.#store(run, step, "sleep", null);
      return true;
    }
    step.wakeMs = dueMs;
    this.#world.open(run, step, "sleeping", dueMs);
    return false;
  }

  #wait(run: StoredRun, step: StoredStep, op: Op): boolean {
    const fault = listenerFault(op["event"]);
    if (fault !== null) throw new BadField(`event ${JSON.stringify(op["event"])}: ${fault}`);
    checked(op, "match", parseMatch);
    checked(op, "if", parse);
    const lookbackMs = op["lookback"] === "run" ? -1 : durationOf(op, "lookback");
    const sinceMs =
      lookbackMs === -1 ? run.begins.createdMs : lookbackMs === null ? null : this.#world.nowMs - lookbackMs;
    const timeoutMs = durationOf(op, "timeout");
    const shown = { event: op["event"], if: shownCondition(op), timeout_ms: timeoutMs, lookback_ms: lookbackMs };
    step.input = Object.fromEntries(Object.entries(shown).filter(([, value]) => value !== null));
    this.#open(run, step, { event: op["event"], condition: shown.if }, timeoutMs);
    const holds = condition(op["match"], op["if"]);
    if (!this.#parts.events.wait(run, step, holds, sinceMs)) this.#parts.waits(step);
    return false;
  }

  async #invoke(run: StoredRun, step: StoredStep, op: Op): Promise<boolean> {
    const name = String(op["workflow"]);
    if (!WORKFLOW.test(name) || name === "app" || name === "sync") {
      const rule = "1 to 100 letters, digits and . _ -, a letter or digit first, and not app or sync";
      throw new BadField(`workflow ${JSON.stringify(name)} is not a workflow's name: ${rule}`);
    }
    const data = payload(op["data"] ?? {}, "data");
    const timeoutMs = durationOf(op, "timeout");
    const stub = this.#parts.stubs.get(name);
    const workflow = this.#world.workflows.get(name);
    if (stub === undefined && workflow === undefined) {
      const message = `workflow '${name}' does not exist in this project: it cannot be invoked`;
      this.#store(run, step, "invoke", null, { name: "InvokeError", message });
      return true;
    }
    step.input = timeoutMs === null ? { workflow: name, data } : { workflow: name, data, timeout_ms: timeoutMs };
    this.#open(run, step, { event: null, condition: null }, timeoutMs);
    if (stub !== undefined) await this.#play(run, step, name, stub, data);
    else if (workflow !== undefined) {
      const event = this.#parts.events.make(
        "runr/invoke",
        data,
        `invoke ${run.id} ${step.id} ${this.#world.runs.length}`,
      );
      const { run: child, isNew } = this.#world.start(workflow, event, { source: "invoke", parent: run });
      step.child = child.id;
      run.children.push(child);
      if (!isNew) this.#join(run, step, child);
    }
    return false;
  }

  /** The idempotency of an invoked workflow has led to a run that exists. */
  #join(run: StoredRun, step: StoredStep, child: StoredRun): void {
    if (child.ended) this.#world.childEnded(run, step, child);
    else if (this.#world.waitsFor(child, run)) {
      const where = child === run ? "this run itself" : "a run that waits for this one";
      const message = `the idempotency key of the invoked workflow leads to ${where}: neither could ever go on`;
      this.#world.deliver(run, step, null, { name: "InvokeError", message });
    }
  }

  async #play(run: StoredRun, step: StoredStep, name: string, stub: Stub, data: unknown): Promise<void> {
    try {
      const output = payload(await stub(structuredClone(data)), `the output of the stub of ${name}`);
      this.#world.deliver(run, step, await this.#parts.encode(JSON.parse(JSON.stringify(output))));
    } catch (error) {
      const message = `the invoked run failed: ${error instanceof Error ? error.message : String(error)}`;
      this.#world.deliver(run, step, null, { name: "InvokeError", message });
    }
  }

  #send(run: StoredRun, step: StoredStep, op: Op): boolean {
    const given = op["events"] as Op[];
    for (const [place, { name }] of given.entries()) {
      const fault = senderFault(name);
      if (fault !== null) throw new BadField(`events[${place}].name: ${fault}`);
    }
    step.input = { events: given.map(({ name }) => name) };
    this.#store(run, step, "send_event", null);
    const ids = given.map(({ name, data, id, ts }, place) => {
      const own = `${run.id}/${step.id}/${place}`;
      const event = this.#parts.events.make(name, data, `sent ${own}`, ts);
      return this.#parts.events.accept(event, id === undefined ? `w:${own}` : `u:${id}`).id;
    });
    step.output = { ids };
    return !run.ended;
  }

  #open(run: StoredRun, step: StoredStep, wait: { event: any; condition: any }, timeoutMs: number | null): void {
    if (timeoutMs === 0) throw new BadField("timeout: must be longer than zero");
    const dueMs = Math.min(this.#world.nowMs + (timeoutMs ?? DEFAULT_WAIT_MS), run.begins.deadlineMs);
    step.wait = { ...wait, timeout_at: timeText(dueMs), warnings: [] };
    this.#world.open(run, step, "waiting", dueMs);
  }

  async #completed(run: StoredRun, op: Op): Promise<void> {
    try {
      run.stored = payload(op["output"], "output");
    } catch (fault) {
      if (!(fault instanceof BadField)) throw fault;
      this.#fail(run, { name: fault.kind, message: `run_completed: ${fault.message}` });
      return;
    }
    run.output = await this.#parts.decode(run.stored);
    this.#world.end(run, "completed");
  }

  #fail(run: StoredRun, error: DescribedError): void {
    this.functionFailed(run, error, { non_retriable: true });
  }

  #strike(run: StoredRun, stepId: unknown): void {
    run.repeats += 1;
    if (run.repeats < MOST_REPEATS) {
      this.#world.goOn(run);
      return;
    }
    const message =
      `the function answered step '${stepId}', which has a stored result, ${run.repeats} times in a row: ` +
      "code between steps must take the same way on every invocation";
    this.#fail(run, { name: "NonDeterminismError", message });
  }

  #attempt(attempt: number, error: DescribedError | null, stepId: string | null = null): StoredAttempt {
    const now = timeText(this.#world.nowMs);
    return { attempt, error, step_id: stepId, started_at: now, ended_at: now, warning: null };
  }
}

function isMemoized(step: StoredStep | undefined): boolean {
  return step?.status === "completed" || step?.status === "failed";
}
