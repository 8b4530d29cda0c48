/**
 * The same workflows in the real engine and in the kit for tests: what is stored of their runs must be the same.
 * RUNR_API_URL, RUNR_TOKEN and RUNR_WORKFLOW_SIGNING_KEY say where; the argument is the project.
 */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../src/client.js";
import { NonRetriableError, RetryAfterError, StepError, Workflows } from "../src/index.js";
import { TestEngine } from "../src/testing.js";
import { drawn, register } from "./drawn.js";
import { Lines } from "./engine.js";
import { luck } from "./luck.js";
import { serveHere } from "./serve-here.js";

const wf = new Workflows({ logger: new Lines() });

const told = (error: unknown): string => {
  assert.ok(error instanceof StepError, String(error));
  return `${error.name}: ${error.message}`;
};

wf.workflow("steps", {}, async (ctx, step) => {
  const [a, again] = await Promise.all([step.run("a", (n: number) => ({ n }), 1), step.run("a", () => [null, "é"])]);
  await step.sleep("nap", "20ms");
  await step.sleepUntil("past", new Date(0));
  await step.sleep("none", 0);
  await step.sendEvent("tell", [{ name: "parity.told", data: { by: "steps" } }, { name: "parity.more" }]);
  return { a, again, data: ctx.event.data, nothing: await step.run("nothing", () => undefined) };
});

wf.workflow("retries", { retries: 2 }, async (ctx, step) => {
  const flaky = await step.run("flaky", () => {
    if (ctx.attempt < 2) throw new RetryAfterError(`attempt ${ctx.attempt}`, "20ms");
    return ctx.attempt;
  });
  const fail = (error: Error) => (): never => {
    throw error;
  };
  const used = await step.run("used up", fail(new RetryAfterError("again", "10ms"))).catch(told);
  const once = await step
    .options({ retries: 0 })
    .run("once", fail(new RangeError("once")))
    .catch(told);
  const never = await step.run("never", fail(new NonRetriableError("never"))).catch(told);
  const nan = await step.run("nan", () => Number.NaN).catch(told);
  return { flaky, used, once, never, nan };
});

wf.workflow("fails", { retries: 1 }, async (_ctx, step) => {
  await step.run("a", () => 1);
  await step.options({ retries: 0 }).run("b", () => {
    throw new TypeError("uncaught");
  });
});

wf.workflow("throws", { retries: 1 }, async (_ctx, step) => {
  await step.run("a", () => 1);
  throw new RetryAfterError("between steps", "20ms");
});

wf.workflow("after", { triggers: [{ event: "runr/run.failed", if: 'event.data.workflow == "throws"' }] }, (ctx) => {
  const { workflow, status, error, lineage } = ctx.event.data;
  return { workflow, status, error: error.message, lineage: lineage.length };
});

wf.workflow("waits", { timeout: "1h" }, async (_ctx, step) => {
  const nothing = await step.waitForEvent("nothing", { event: "parity.nothing", timeout: "30ms" });
  await step.sendEvent("early", { name: "parity.early", data: { n: 1 } });
  const early = await step.waitForEvent("early:look", {
    event: "parity.early",
    lookback: "run",
    if: "async.data.n == 1",
  });
  const go = await step.waitForEvent("go", { event: "parity.go", match: "data.id", if: "async.data.n > event.data.n" });
  return [nothing, early?.data, go?.data];
});

const child = wf.workflow("child", { retries: 0, idempotency: "event.data.key" }, async (ctx, step) => {
  if (ctx.event.data["fails"]) throw new Error("the child fails");
  if (ctx.event.data["sleeps"]) await step.sleep("long", "1h");
  return step.run("double", () => ctx.event.data["n"] * 2);
});

wf.workflow("invokes", {}, async (_ctx, step) => [
  await step.invoke("one", { workflow: child, data: { n: 21, key: "k" } }),
  await step.invoke("same", { workflow: child, data: { n: 1, key: "k" } }),
  await step.invoke("fails", { workflow: child, data: { fails: true } }).catch(told),
  await step.invoke("late", { workflow: child, data: { sleeps: true }, timeout: "50ms" }).catch(told),
  await step.invoke("unknown", { workflow: "unknown" }).catch(told),
]);

wf.workflow("bad", {}, async (_ctx, step) => [
  await step.waitForEvent("event", { event: "no blanks" }).catch(told),
  await step.waitForEvent("platform", { event: "runr/cron" }).catch(told),
  await step.waitForEvent("root", { event: "x", if: "data.x == 1" }).catch(told),
  await step.waitForEvent("match", { event: "x", match: "order_id" }).catch(told),
  await step.waitForEvent("chain", { event: "x", if: "1 < 2 < 3" }).catch(told),
  await step.invoke("app", { workflow: "app" }).catch(told),
  await step.sendEvent("send", [{ name: "fine" }, { name: "runr/x" }]).catch(told),
  await step.run("large", () => "x".repeat(1024 * 1024)).catch(told),
]);

wf.workflow("many", { checkpoint: { maxSteps: 4 } }, async (_ctx, step) => {
  let sum = 0;
  for (let number = 0; number < 6; number += 1) sum += await step.run("add", () => number);
  await step.sleep("nap", "10ms");
  return sum + (await step.run("last", () => 1));
});

wf.workflow("late", { timeout: "1s" }, async (_ctx, step) => step.waitForEvent("x", { event: "parity.never" }));

const cancelOn = [{ event: "parity.stop", match: "data.id" }];
wf.workflow("stops", { cancelOn }, async (_ctx, step) => {
  await step.run("a", () => 1);
  await step.waitForEvent("x", { event: "parity.never" });
});

register(wf);

interface Story {
  workflow: string;
  data?: object;
  /** Sent once the run waits in the step. */
  events?: { at: string; name: string; data: object }[];
}

const STORIES: Story[] = [
  { workflow: "steps", data: { text: "\u0000 é \ud83d\ude00", deep: [{ a: [1.5, null, true] }] } },
  { workflow: "retries" },
  { workflow: "fails" },
  { workflow: "throws" },
  {
    workflow: "waits",
    data: { id: "w-1", n: 1 },
    events: [
      { at: "go", name: "parity.go", data: { id: "w-2", n: 5 } },
      { at: "go", name: "parity.go", data: { id: "w-1", n: 1 } },
      { at: "go", name: "parity.go", data: { id: "w-1", n: 2 } },
    ],
  },
  { workflow: "invokes" },
  { workflow: "bad" },
  { workflow: "many" },
  { workflow: "late" },
  { workflow: "stops", data: { id: "s-1" }, events: [{ at: "x", name: "parity.stop", data: { id: "s-1" } }] },
];

const DRAWN = 24;
for (let seed = 0; seed < DRAWN; seed += 1) {
  STORIES.push({ workflow: "drawn", data: { program: drawn(luck(seed)), seed } });
}

/** What is stored of a run, without its ids and times. */
function shown(run: any): unknown {
  const failure = (error: any): unknown => (error === null ? null : [error.name, error.message]);
  const attempts = (given: any[]): unknown[] => given.map(({ attempt, error }) => [attempt, failure(error)]);
  const output = ({ kind, output: made }: any): unknown => {
    if (kind === "send_event" && made !== null) return made.ids.length;
    return kind === "wait_for_event" && made !== null ? [made.name, made.data] : made;
  };
  return {
    ...{ workflow: run.workflow, status: run.status, output: run.output, error: failure(run.error) },
    attempts: attempts(run.attempts),
    steps: run.steps.map((step: any) => ({
      ...{ id: step.id, name: step.name, kind: step.kind, status: step.status, input: step.input },
      ...{ output: output(step), error: failure(step.error), attempts: attempts(step.attempts) },
      timedOut: step.timed_out,
    })),
    children: run.children.map((one: any) => [one.workflow, one.step_id, one.status]),
  };
}

async function inTheKit({ workflow, data = {}, events = [] }: Story): Promise<unknown[]> {
  const engine = new TestEngine(wf);
  const run = await engine.start(workflow, data);
  for (const { at, name, data: sent } of events) {
    for (let passed = 0; run.steps.get(at)?.status !== "waiting"; passed += 1) {
      assert.ok(passed < 100, String(run.timeline));
      await engine.advance("10ms");
    }
    await engine.send(name, sent);
  }
  await engine.finish(run);
  return engine.runs.filter((one) => one.source !== "invoke").map((one) => shown(one.history));
}

const [project = "default"] = process.argv.slice(2);
const client = new Client({ project });

async function inTheEngine({ workflow, data = {}, events = [] }: Story): Promise<unknown[]> {
  const run = await client.start(workflow, { data, test: true });
  for (const { at, name, data: sent } of events) {
    while ((await run.get()).steps.find(({ id }) => id === at)?.status !== "waiting") await sleep(20);
    await client.send({ name, data: sent });
  }
  await run.result({ timeout: "60s" }).catch(() => undefined);
  const found = [shown(await run.get())];
  if (workflow !== "throws") return found;
  for (;;) {
    for await (const { id } of client.runs({ workflow: "after" })) {
      await client.run(id).result();
      return [...found, shown(await client.run(id).get())];
    }
    await sleep(20);
  }
}

await serveHere(wf, project, async () => {
  for (const story of STORIES) assert.deepEqual(await inTheKit(story), await inTheEngine(story), JSON.stringify(story));
});
process.stdout.write(`${STORIES.length} stories\n`);
