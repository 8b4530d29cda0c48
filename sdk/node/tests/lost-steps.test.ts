/** Step ids that differ at every call. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LostSteps, MOST_IN_A_ROW } from "../src/lost-steps.js";
import { type Body, Lines, type Op, ask, registry } from "./engine.js";

/** The ops of so many invocations, each with all results so far, and what was logged. */
async function run(body: Body, most: number): Promise<{ ops: Op[]; logger: Lines }> {
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, body);
  const memo = new Map<string, unknown>();
  const ops: Op[] = [];
  while (ops.length < most && !String(ops.at(-1)?.["op"]).startsWith("run_")) {
    const op = await ask(workflows, memo);
    ops.push(op);
    if (op["op"] === "step_completed") memo.set(op["id"], { status: "completed", output: op["output"] });
  }
  return { ops, logger };
}

test("ids that differ at every call are told once, and fail the run at the hundredth", async () => {
  let executed = 0;
  const { ops, logger } = await run(async (_ctx, step) => step.run(`id-${Math.random()}`, () => (executed += 1)), 300);

  assert.equal(ops.length, MOST_IN_A_ROW + 1);
  assert.equal(executed, MOST_IN_A_ROW);
  assert.deepEqual([ops.at(-1)?.["error"].name, ops.at(-1)?.["non_retriable"]], ["NonDeterminismError", true]);
  const told = logger.all.filter(([, text]) => String(text).includes("did not ask for it"));
  assert.equal(told.length, 1);
});

test("code that is deterministic is left alone, however long it runs", async () => {
  const { ops, logger } = await run(async (_ctx, step) => {
    for (let n = 0; n < 150; n += 1) await step.run("again", () => n);
    return "done";
  }, 300);

  assert.deepEqual([ops.length, ops.at(-1)?.["output"], logger.all], [151, "done", []]);
});

test("steps that are started together are not watched: which is first may vary", async () => {
  let call = 0;
  const { ops, logger } = await run(async (_ctx, step) => {
    call += 1;
    await Promise.all([step.run(`x-${call}`, () => 1), step.run(`y-${call}`, () => 1)]);
  }, 120);

  assert.deepEqual([ops.length, logger.all], [120, []]);
});

test("only so many runs are remembered, the latest", () => {
  const lost = new LostSteps(new Lines(), 2);
  const asked = { has: (): boolean => false };
  for (const run of ["r1", "r2", "r3"]) {
    for (let time = 0; time < MOST_IN_A_ROW; time += 1) lost.watch("w", run).answered("lost", asked);
  }
  assert.equal(lost.watch("w", "r1").executes("new", asked), null);
  assert.notEqual(lost.watch("w", "r2").executes("new", asked), null);
  assert.equal(lost.watch("w", "r2").executes("new", asked), null, "a run that has been failed is forgotten");
  lost.watch("w", "r3").ended();
  assert.equal(lost.watch("w", "r3").executes("new", asked), null);
});
