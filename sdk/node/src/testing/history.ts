/** Whether code still goes the way of a run that is stored: a dry replay that executes nothing. */

import { type Registry, endpointOf } from "../registry.js";
import { shown } from "../shown.js";
import { same } from "../rules/json-values.js";
import type { Op } from "./op-fields.js";
import { withSteps } from "./request.js";
import { ENDED, type History } from "./stored.js";

/** Statuses of a step that a run is in. */
const OPEN = ["sleeping", "waiting", "retrying"];

/** The code does not go the way of the stored run. `stepId` is the first step in which they part, null: the end. */
export class Divergence extends Error {
  override name = "Divergence";

  constructor(
    message: string,
    readonly stepId: string | null,
  ) {
    super(message);
  }
}

/** How far the code has come: the steps that it called, and the next one, null where the function has ended. */
export interface Replayed {
  readonly called: readonly string[];
  readonly next: string | null;
}

interface Found {
  /** Kinds of the steps that were called, by id, in order. */
  readonly called: ReadonlyMap<string, string>;
  readonly next: string | null;
  readonly op: Op;
}

/**
 * Replays a stored run with the code of now, executing no step. Rejects with Divergence at the first difference.
 *
 * `history` is a run with its steps as `GET /runs/{id}` answers it, or as `run.history` of the kit is. The code must call
 * the steps of the history, with their kinds, and no other before the last of them; a run that is in a step must go on in
 * that one, and one that has ended must end in the same way, with the same output.
 */
export async function replay(app: Registry<any>, history: History): Promise<Replayed> {
  const endpoint = endpointOf(app);
  const answer = await endpoint.answer(requestOf(history));
  if (answer.status !== 200) {
    throw new Divergence(`the run cannot be replayed: ${(JSON.parse(answer.body) as { error: string }).error}`, null);
  }
  const { ops, called: listed } = JSON.parse(answer.body) as { ops: [Op]; called: { id: string; kind: string }[] };
  const [op] = ops;
  const called = new Map(listed.map(({ id, kind }) => [id, kind]));
  const next: string | null = op["op"] === "would_run" ? op["id"] : null;
  if (next !== null) called.set(next, op["kind"]);
  const found = { called, next, op };
  checkKinds(history, found);
  checkWay(history, found);
  if (next === null) {
    await checkEnd(history, op, (output) => endpoint.pipeline.decode(output, "run"));
  }
  return { called: [...called.keys()], next };
}

function requestOf(history: History): string {
  const { id, workflow, source, test, started_at, parent_run_id, event, steps } = history;
  if (typeof event !== "object" || event === null) {
    throw new TypeError("the history has no event: take that of one run (GET /runs/{id}), not that of a list");
  }
  const memo = steps.flatMap(({ id: step, status, output, error }): [string, object][] => {
    if (status === "completed") return [[step, { status, output }]];
    return status === "failed" ? [[step, { status, error }]] : [];
  });
  const run = { id, attempt: 0, started_at, source, replay: source === "replay", parent_run_id, test };
  return withSteps(
    { type: "execute", protocol: "v1", dry: true, workflow, run, event, step_order: memo.map(([step]) => step) },
    memo,
  );
}

function checkKinds({ steps }: History, { called }: Found): void {
  for (const { id, kind } of steps) {
    const found = called.get(id);
    if (found !== undefined && found !== kind) {
      throw new Divergence(`step ${shown(id)} is ${found} in the code, and ${kind} in the history`, id);
    }
  }
}

/** Every step that has a result is called, and the run goes on in the step that it is in, if it is in one. */
function checkWay(history: History, { called, next, op }: Found): void {
  const instead = insteadOf(next, op);
  const last = [...called.keys()].filter((id) => id !== next).at(-1);
  const after = last === undefined ? "" : `; the last step that it called is ${shown(last)}`;
  const missing = history.steps.find(({ id, status }) => isMemoized(status) && !called.has(id));
  if (missing !== undefined) {
    const message = `the history goes on with step ${shown(missing.id)}, where the code ${instead}${after}`;
    throw new Divergence(message, missing.id);
  }
  const open = history.steps.filter(({ status }) => OPEN.includes(status));
  const [first] = open;
  if (first !== undefined && op["op"] !== "run_failed" && !open.some(({ id }) => id === next)) {
    throw new Divergence(`the run is in step ${shown(first.id)}, and the code ${instead} without it${after}`, first.id);
  }
  if (next !== null && history.status === "completed") {
    throw new Divergence(`the run has completed, and the code goes on with a new step ${shown(next)}`, next);
  }
}

function insteadOf(next: string | null, op: Op): string {
  if (op["op"] === "run_failed") return `fails with ${op["error"].name}: ${op["error"].message}`;
  return next === null ? "ends" : `calls ${shown(next)}`;
}

function isMemoized(status: string): boolean {
  return status === "completed" || status === "failed";
}

/** The code has ended without a step. */
async function checkEnd(history: History, op: Op, decode: (output: unknown) => Promise<unknown>): Promise<void> {
  const { status, error, steps } = history;
  if (op["op"] === "run_failed") {
    const failure = op["error"] as { name: string; message: string };
    if (status === "failed" && error?.name === failure.name) return;
    if (!ENDED.includes(status) && steps.some((step) => isOf(failure, step.error))) return;
    throw new Divergence(`the run is ${status}, and the code fails with ${failure.name}: ${failure.message}`, null);
  }
  if (status === "completed") {
    const [stored, made] = [await decode(history.output), await decode(op["output"] ?? null)];
    if (!same(stored, made)) {
      throw new Divergence(`the run has completed with ${shown(stored)}, the code with ${shown(made)}`, null);
    }
  }
  if (status === "failed") throw new Divergence("the run has failed, and the code completes", null);
}

/** Whether a failure is that of a step: that it has failed for good and is not caught is no fault of the code. */
function isOf({ name, message }: { name: string; message: string }, error: unknown): boolean {
  const stored = (error ?? {}) as { name?: unknown; message?: unknown };
  return stored.name === name && stored.message === message;
}
