/** The kit for tests: virtual time, events, faults, crashes. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NonRetriableError, RetryAfterError, StepError, Workflows } from "../src/index.js";
import { TestEngine, fails, returns } from "../src/testing.js";
import { Lines, registry } from "./engine.js";
import { encryption } from "./encryption.js";

const BEGINS = Date.parse("2026-01-01T00:00:00Z");
const DAY_MS = 86_400_000;

type Order = { order_id: string; by?: string };
type Events = { "order.packed": Order; "order.shipped": Order; "order.created": Order };

function orders(options: { retries?: number } = {}) {
  const wf = new Workflows<Events>({ logger: new Lines() });
  const order = wf.workflow(
    "order",
    { triggers: [{ event: "order.created" }], timeout: "60d", ...options },
    async (ctx, step) => {
      const paid = await step.run("charge", ({ order_id }: Order) => ({ paid: order_id }), ctx.event.data);
      await step.sleep("cool-off", "30d");
      const packed = await step.waitForEvent("packed", {
        event: "order.packed",
        match: "data.order_id",
        timeout: "1d",
      });
      const shipped = await step.waitForEvent("shipped", {
        event: "order.shipped",
        match: "data.order_id",
        timeout: "3d",
      });
      return { ...paid, packed: packed !== null, by: shipped?.data.by ?? null };
    },
  );
  return { wf, order };
}

test("a month, two events and five attempts more", async () => {
  const { wf, order } = orders({ retries: 5 });
  const engine = new TestEngine(wf);
  await engine.send("order.packed", { order_id: "o-2" }, { whenWaiting: "packed" });
  await engine.send("order.packed", { order_id: "o-1" }, { after: "30d6h" });
  await engine.send("order.shipped", { order_id: "o-1", by: "van" }, { whenWaiting: "shipped" });
  const run = await engine.run(order, { order_id: "o-1" }, { faults: [fails("charge", undefined, { times: 5 })] });

  assert.equal(run.status, "completed");
  assert.deepEqual(run.output, { paid: "o-1", packed: true, by: "van" });
  assert.deepEqual(run.timeline.ops, [
    ...Array.from({ length: 5 }, () => ["step_failed", "charge", "retrying"]),
    ["step_completed", "charge", "completed"],
    ["sleep", "cool-off", "sleeping"],
    ["sleep", "cool-off", "completed"],
    ["wait_for_event", "packed", "waiting"],
    ["wait_for_event", "packed", "completed"],
    ["wait_for_event", "shipped", "waiting"],
    ["wait_for_event", "shipped", "completed"],
    ["run_completed", null, "completed"],
  ]);
  const backoffs = run.timeline.of("charge").map(({ at, attempt }) => [(at.getTime() - BEGINS) / 1000, attempt]);
  assert.deepEqual(backoffs, [
    [0, 1],
    [2, 2],
    [6, 3],
    [14, 4],
    [30, 5],
    [62, 6],
  ]);
  assert.equal(engine.now.getTime(), BEGINS + 30 * DAY_MS + DAY_MS / 4);
  assert.deepEqual([engine.unsent, run.executed.get("charge")], [[], 6]);
  assert.match(
    String(run.timeline),
    /^2026-01-01T00:00:02.000Z {2}step_failed charge #2 -> retrying {2}Error: charge fails/m,
  );
});

test("time stands still until it is let pass", async () => {
  const { wf, order } = orders();
  const engine = new TestEngine(wf, { begins: new Date(0) });
  const run = await engine.start(order, { order_id: "o-1" });
  assert.deepEqual([run.status, engine.now.getTime()], ["sleeping", 0]);
  await engine.advance("29d");
  assert.equal(run.status, "sleeping");
  await engine.advance("1d");
  assert.equal(run.status, "waiting");
  const other = await engine.send("order.packed", { order_id: "o-2" });
  const sent = await engine.send("order.packed", { order_id: "o-1" }, { id: "p" });
  const again = await engine.send("order.packed", { order_id: "o-1" }, { id: "p" });
  assert.deepEqual([other.resumed, sent.resumed, again.duplicate, again.id], [0, 1, true, sent.id]);
  await engine.finish(run);
  assert.deepEqual([run.output, engine.now.getTime()], [{ paid: "o-1", packed: true, by: null }, 33 * DAY_MS]);
});

test("errors decide about attempts", async () => {
  const wf = registry();
  wf.workflow("w", { retries: 2 }, async (ctx, step) => {
    const one = await step.run("one", () => ctx.attempt);
    const caught = await step.run("two", () => 1).catch((error: unknown) => (error as StepError).name);
    const few = await step
      .options({ retries: 0 })
      .run("three", () => 1)
      .catch((error: unknown) => String(error));
    return { one, caught, few };
  });
  wf.workflow("outside", { retries: 1 }, () => {
    throw new RetryAfterError("busy", "1h");
  });
  const engine = new TestEngine(wf, {
    faults: [
      fails("one", new RetryAfterError("later", "1h")),
      fails("one", new RetryAfterError("then", "2026-01-02T00:00:00Z")),
      fails("two", new NonRetriableError("never"), { times: null }),
      fails("three"),
    ],
  });
  const run = await engine.run("w");
  const few = 'step "three" failed: Error: three fails, as the test says';
  assert.deepEqual(run.output, { one: 2, caught: "NonRetriableError", few });
  const hours = run.timeline.of("one").map(({ at }) => (at.getTime() - BEGINS) / 3_600_000);
  assert.deepEqual(hours, [0, 1, 24]);

  const failed = await engine.run("outside");
  assert.deepEqual([failed.status, failed.error?.message, failed.attempts.length], ["failed", "busy", 2]);
  assert.deepEqual(failed.timeline.ops, [
    ["run_failed", null, "queued"],
    ["run_failed", null, "failed"],
  ]);
  assert.equal(engine.now.getTime(), BEGINS + 25 * 3_600_000);
});

test("steps may be stood in for", async () => {
  const { wf, order } = orders();
  const engine = new TestEngine(wf, {
    faults: [returns("charge", ({ order_id }: Order) => ({ paid: `${order_id}!` }))],
  });
  const constant = await engine.run(order, { order_id: "o" }, { faults: [returns("charge", { paid: "x" })] });
  const made = await engine.run(order, { order_id: "o" });

  assert.deepEqual([constant.output?.paid, made.output?.paid], ["x", "o!"]);
});

test("invoked workflows are real, or stubs", async () => {
  const wf = registry();
  const child = wf.workflow("child", { retries: 0, idempotency: "event.data.key" }, async (ctx, step) => {
    if (ctx.event.data["n"] < 0) throw new Error("negative");
    await step.sleep("nap", "1h");
    return step.run("double", () => ctx.event.data["n"] * 2);
  });
  wf.workflow("parent", { timeout: "10d" }, async (_ctx, step) => {
    const told = (error: unknown): string => `${(error as StepError).name}: ${(error as StepError).message}`;
    return [
      await step.invoke("real", { workflow: child, data: { n: 2, key: 1 } }),
      await step.invoke("same", { workflow: child, data: { n: 5, key: 1 } }),
      await step.invoke("fails", { workflow: child, data: { n: -1 } }).catch(told),
      await step.invoke("late", { workflow: child, data: { n: 3 }, timeout: "1m" }).catch(told),
      await step.invoke("stub", { workflow: "stub", data: { n: 4 } }),
      await step.invoke("bad", { workflow: "bad" }).catch(told),
      await step.invoke("none", { workflow: "none" }).catch(told),
    ];
  });
  const stubs = {
    stub: async ({ n }: { n: number }) => ({ n }),
    bad: () => {
      throw new Error("declined");
    },
  };
  const engine = new TestEngine(wf, { stubs });
  const run = await engine.run("parent");

  assert.deepEqual(run.output, [
    4,
    4,
    "InvokeError: the invoked run failed: negative",
    "InvokeTimeout: the invoked workflow did not end within the timeout of the step",
    { n: 4 },
    "InvokeError: the invoked run failed: declined",
    "InvokeError: workflow 'none' does not exist in this project: it cannot be invoked",
  ]);
  assert.deepEqual(
    run.children.map(({ status }) => status),
    ["completed", "completed", "failed", "sleeping"],
  );
  assert.equal(engine.runs.length, 4);
});

test("events start, cancel, resume and come once", async () => {
  const wf = registry();
  const cancelOn = [{ event: "stop", match: "data.id", timeout: "1h" }];
  wf.workflow("w", { triggers: [{ event: "go", if: "event.data.n > 1" }], cancelOn }, async (ctx, step) => {
    await step.sendEvent("tell", [{ name: "told", data: { id: ctx.event.data["id"] }, id: "once" }, { name: "told" }]);
    const own = await step.waitForEvent("own", { event: "told", lookback: "run", timeout: "1d" });
    const early = await step.waitForEvent("early", { event: "early", if: "async.data.n == 2", lookback: "1h" });
    return [own?.data["id"], early?.data["n"] ?? null];
  });
  wf.workflow("after", { triggers: [{ event: "runr/run.completed" }] }, (ctx) => ctx.event.data["output"]);
  wf.workflow("sorry", { triggers: [{ event: "runr/run.cancelled" }] }, (ctx) => ctx.event.data["workflow"]);
  const engine = new TestEngine(wf);
  await engine.send("early", { n: 2 });
  await engine.advance("59m");

  const { runs: none } = await engine.send("go", { n: 1 });
  const { runs } = await engine.send("go", { n: 2, id: 7 });
  assert.deepEqual([none, runs[0]?.status, runs[0]?.output], [[], "completed", [7, 2]]);
  assert.deepEqual([engine.runs[1]?.workflow, engine.runs[1]?.output], ["after", [7, 2]]);

  await engine.advance("2h");
  const {
    runs: [waiting],
  } = await engine.send("go", { n: 3, id: 8 });
  assert.equal(waiting?.status, "waiting");
  const missed = await engine.send("stop", { id: 9 });
  const stopped = await engine.send("stop", { id: 8 });
  assert.deepEqual([missed.cancelled, stopped.cancelled, waiting?.status], [0, 1, "cancelled"]);
  assert.equal(engine.runs.at(-1)?.output, "w");
});

test("a run that is never answered times out, one that is cancelled takes its children along", async () => {
  const wf = registry();
  wf.workflow("w", { timeout: "2d" }, async (_ctx, step) => step.invoke("child", { workflow: "child" }));
  wf.workflow("child", {}, async (_ctx, step) => step.waitForEvent("x", { event: "x" }));
  const engine = new TestEngine(wf);
  const run = await engine.run("w");
  const late = await engine.start("w", {}, { delay: "1d", key: "k" });
  const same = await engine.start("w", {}, { key: "k" });

  assert.deepEqual([run.status, run.error?.name, run.children[0]?.status], ["timed_out", "RunTimeout", "cancelled"]);
  assert.equal(engine.now.getTime(), BEGINS + 2 * DAY_MS);
  assert.equal(late, same);
  assert.equal(late.timeline.length, 0);
  await engine.advance("25h");
  assert.equal(late.status, "waiting");
  await engine.cancel(late);
  assert.deepEqual([late.status, late.children[0]?.status], ["cancelled", "cancelled"]);
  await assert.rejects(engine.cancel(late), /the run has ended already: cancelled/);
});

test("what the engine would refuse is refused, by field and value", async () => {
  const wf = registry();
  wf.workflow("w", {}, async (_ctx, step) => {
    const told = (error: unknown): string => `${(error as StepError).name}: ${(error as StepError).message}`;
    return [
      await step.waitForEvent("a", { event: "no blanks" }).catch(told),
      await step.waitForEvent("b", { event: "x", if: "data.x == 1" }).catch(told),
      await step.waitForEvent("c", { event: "x", match: "order_id" }).catch(told),
      await step.invoke("d", { workflow: "app" }).catch(told),
      await step.sendEvent("e", [{ name: "runr/x" }]).catch(told),
      await step.run("f", () => "x".repeat(1024 * 1024)).catch(told),
    ];
  });
  const run = await new TestEngine(wf).run("w");

  assert.deepEqual(run.output, [
    "StepArgumentError: event: 'no blanks' may hold only letters a–z and A–Z, digits and . _ : / -",
    "StepArgumentError: if: at character 1: expected event, async, true, false or null, found 'data', in \"data.x == 1\"",
    'StepArgumentError: match: at character 1: a match path begins with one of data, id, name, ts, as in data.order_id, in "order_id"',
    'StepArgumentError: workflow: "app" is reserved',
    'StepArgumentError: events[0].name: names under runr/ are reserved for the platform, not "runr/x"',
    'TooLarge: step_completed "f": output has 1048578 bytes, 1048576 are allowed',
  ]);
});

test("misuse is told", async () => {
  const { wf, order } = orders();
  const engine: TestEngine = new TestEngine(wf);

  await assert.rejects(engine.run("ordr"), /the workflow "ordr" is not registered; there is order/);
  await assert.rejects(
    engine.run(order, { order_id: "o" }, { event: { name: "x" } }),
    /data and event exclude each other/,
  );
  await assert.rejects(engine.send("runr/x"), /reserved for the platform/);
  await assert.rejects(engine.send("x", {}, { after: "1s", whenWaiting: "a" }), /exclude each other/);
  await assert.rejects(Promise.all([engine.advance("1s"), engine.advance("1s")]), /await one call of the engine/);
});

test("with middleware, what is stored is encoded, and the test sees what it means", async () => {
  const wf = registry({ middleware: [await encryption(new Uint8Array(32))] });
  wf.workflow("w", {}, async (ctx, step) => {
    const paid = await step.waitForEvent("paid", { event: "paid", match: "data.order_id" });
    const child = await step.invoke("child", { workflow: "child", data: { card: paid?.data["card"] } });
    return { child, total: ctx.event.data["total"] };
  });
  const engine = new TestEngine(wf, { stubs: { child: ({ sealed }: { sealed: string }) => sealed.slice(0, 4) } });
  await engine.send("paid", { order_id: "o", card: "4111" }, { whenWaiting: "paid" });
  const run = await engine.run("w", { order_id: "o", total: 5 });

  assert.deepEqual(run.output, { child: "aes:", total: 5 });
  assert.match(String(run.history.output), /^aes:/);
  assert.doesNotMatch(JSON.stringify(run.history), /4111|total/);
});
