/** Step ids that differ at every call. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { LostSteps, MOST_IN_A_ROW } from "../src/lost-steps.js";
import { type Body, Lines, type Op, ask, askAll, registry } from "./engine.js";

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
  const told = logger.all.filter(([, text]) => String(text).includes("did not ask for"));
  assert.equal(told.length, 1);
});

/** The first op, and what is logged, where a run has these results and the code is another. */
async function deployed(body: Body, stored: readonly string[], more = {}): Promise<{ ops: Op[]; told: string[] }> {
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, body);
  const memo = new Map(stored.map((id) => [id, { status: "completed", output: null }]));
  const ops = await askAll(workflows, memo, more);
  await askAll(workflows, memo, more);
  return { ops, told: logger.all.map(([, text]) => String(text)) };
}

for (const max_ops of [1, 10]) {
  test(`a step that was renamed is told once a run, in answers of ${max_ops}`, async () => {
    const body: Body = async (_ctx, step) => {
      await step.run("reserve-funds", () => 1);
      await step.run("pay", () => 1);
    };
    const { ops, told } = await deployed(body, ["reserve"], { max_ops });

    assert.equal(ops[0]?.["id"], "reserve-funds");
    assert.equal(told.length, 1);
    const start =
      'step "reserve-funds" was new and was executed, and the code before it did not ask for "reserve", of which a';
    assert.ok(told[0]?.includes(`: ${start} result is stored: `), told[0]);
  });
}

test("so is a step that the engine carries out; of many, five are named", async () => {
  const stored = Array.from({ length: 7 }, (_, n) => `pause-${n}`);
  const { told } = await deployed(async (_ctx, step) => step.sleep("new", "1s"), stored);

  assert.equal(told.length, 1);
  assert.match(String(told[0]), /did not ask for "pause-0", "pause-1", "pause-2", "pause-3", "pause-4" and 2 more,/);
});

test("results that the code asks for in another order are not told", async () => {
  const body: Body = async (_ctx, step) => {
    await Promise.all([step.run("a", () => 1), step.run("b", () => 1), step.run("c", () => 1)]);
  };
  assert.deepEqual((await deployed(body, ["c"])).told, []);
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
