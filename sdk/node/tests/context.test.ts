/** What a workflow knows about its run. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Workflows } from "../src/index.js";
import { type Body, KEY, Lines, ask, executeText, invoke, registry, seal, turn } from "./engine.js";

const done = (output: unknown): Record<string, unknown> => ({ status: "completed", output });

test("the context tells what the request tells", async () => {
  let found: unknown[] = [];
  const run = { id: "r", attempt: 2, started_at: null, source: "event", replay: true, parent_run_id: "p", test: true };
  const op = await invoke(
    async (ctx, step) => {
      const before = ctx.isReplaying;
      await step.run("a", () => 1);
      found = [
        ctx.runId,
        ctx.attempt,
        ctx.startedAt,
        ctx.source,
        ctx.replay,
        ctx.parentRunId,
        ctx.test,
        ctx.workflow,
        ctx.event.name,
      ];
      return [before, ctx.isReplaying];
    },
    { a: done(1) },
    {},
    { run },
  );

  assert.deepEqual(found, ["r", 2, null, "event", true, "p", true, "w", "a"]);
  assert.deepEqual(op["output"], [true, false]);
});

test("ctx.logger is silent about what earlier invocations logged", async () => {
  const logger = new Lines();
  const body: Body = async (ctx, step) => {
    ctx.logger.info("before");
    await step.run("a", () => 1);
    ctx.logger.info("between");
    await step.run("b", () => 2);
    ctx.logger.info("after");
  };
  await invoke(body, {}, { logger });
  await invoke(body, { a: done(1) }, { logger });
  await invoke(body, { a: done(1), b: done(2) }, { logger });

  assert.deepEqual(logger.all, [
    ["info", "before"],
    ["info", "between"],
    ["info", "after"],
  ]);
});

test("the key may come from the environment, and is read at each request", async () => {
  const workflows = new Workflows({ clock: () => 1_700_000_000, logger: new Lines() });
  workflows.workflow("w", {}, () => 1);
  process.env["RUNR_WORKFLOW_SIGNING_KEY"] = KEY;
  try {
    assert.equal((await ask(workflows, {}))["output"], 1);
  } finally {
    delete process.env["RUNR_WORKFLOW_SIGNING_KEY"];
  }
});

test("another protocol than v1 is refused at the start", () => {
  const start = (given: string) => {
    process.env["RUNR_WORKFLOW_PROTOCOL"] = given;
    try {
      return new Workflows({ signingKey: KEY }).definitions;
    } finally {
      delete process.env["RUNR_WORKFLOW_PROTOCOL"];
    }
  };

  for (const given of ["", "v1"]) assert.deepEqual(start(given), []);
  for (const given of ["v2", "V1", "1", " v1"]) {
    assert.throws(() => start(given), {
      name: "SettingsError",
      message: new RegExp(`^RUNR_WORKFLOW_PROTOCOL is "${given}", .* speaks v1 only`),
    });
  }
});

test("the trace context is that of the headers, if they are well-formed", async () => {
  const trace = `00-${"a".repeat(32)}-${"b".repeat(16)}-01`;
  const seen: unknown[] = [];
  const workflows = registry();
  workflows.workflow("w", {}, (ctx) => void seen.push(ctx.traceparent, ctx.traceContext));
  const { body, headers } = await seal(executeText({}));
  await workflows.handleRequest(body, { ...headers, traceparent: ` ${trace}`, TraceState: "a=1" });
  await workflows.handleRequest(body, { ...headers, traceparent: "00-0-0-01", tracestate: "a=1" });

  assert.deepEqual(seen, [trace, { traceparent: trace, tracestate: "a=1" }, null, {}]);
});

test("a step that is awaited twice is passed once", async () => {
  const op = await invoke(
    async (ctx, step) => {
      const a = step.run("a", () => 1);
      await a;
      await a;
      const between = ctx.isReplaying;
      await step.run("b", () => 2);
      return [between, ctx.isReplaying];
    },
    { a: done(1), b: done(2) },
  );

  assert.deepEqual(op["output"], [true, false]);
});

test("what is logged after the end of the invocation is dropped", async () => {
  const logger = new Lines();
  const body: Body = async (ctx, step) => {
    await Promise.race([step.run("a", () => 1), turn()]);
    await turn();
    ctx.logger.info("late");
  };
  await invoke(body, {}, { logger });
  for (let time = 0; time < 5; time += 1) await turn();

  assert.deepEqual(logger.all, []);
});
