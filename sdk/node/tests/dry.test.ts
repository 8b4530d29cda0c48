/** Dry requests: what the code would do next, and nothing is done (protocol section 4). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Body, Lines, executeText, registry, seal } from "./engine.js";

async function dry(body: Body, memo: Record<string, Record<string, unknown>> = {}): Promise<any> {
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, body);
  const { body: sealed, headers } = await seal(executeText(memo, { dry: true, max_ops: 50, step_kinds: {} }));
  const answer = await workflows.handleRequest(sealed, headers);
  assert.equal(answer.status, 200, answer.body);
  assert.deepEqual(logger.all, []);
  return JSON.parse(answer.body);
}

const done = { status: "completed", output: 1 };

test("nothing is executed, and the first step without a result is named", async () => {
  const executed: string[] = [];
  const body: Body = async (ctx, step) => {
    ctx.logger.info("not told");
    await Promise.all([step.run("a", () => executed.push("a")), step.run("a", () => executed.push("a:1"))]);
    await step.sleep("nap", "1h").catch(() => executed.push("caught"));
    await step.waitForEvent("x", { event: "x" });
    return "end";
  };

  assert.deepEqual(await dry(body), {
    runr_workflow: "v1",
    ops: [{ op: "would_run", id: "a", name: "a", kind: "run" }],
    called: [],
  });
  assert.deepEqual(await dry(body, { a: done, gone: done }), {
    runr_workflow: "v1",
    ops: [{ op: "would_run", id: "a:1", name: "a", kind: "run" }],
    called: [{ id: "a", kind: "run" }],
  });
  const { ops, called } = await dry(body, { a: done, "a:1": done, nap: done });
  assert.deepEqual(ops, [{ op: "would_run", id: "x", name: "x", kind: "wait_for_event" }]);
  assert.deepEqual(called.at(-1), { id: "nap", kind: "sleep" });
  assert.deepEqual(executed, []);
});

test("the end is told as ever", async () => {
  const completed = await dry(async (_ctx, step) => step.run("a", () => 2), { a: done });
  const failed = await dry(async (_ctx, step) => step.run("a", () => 2), { a: { status: "failed", error: "no" } });

  assert.deepEqual(
    [completed.ops, completed.called],
    [[{ op: "run_completed", output: 1 }], [{ id: "a", kind: "run" }]],
  );
  assert.deepEqual([failed.ops[0].op, failed.ops[0].error.message], ["run_failed", "no"]);
});
