/** The kit for tests: processes that die. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Workflows } from "../src/index.js";
import { TestEngine, type TestRun, everyCrash, fails } from "../src/testing.js";
import { registry } from "./engine.js";

test("the process may die after any op", async () => {
  const wf = registry();
  const app = (): Workflows<any> => {
    const made = registry();
    made.workflow("w", { retries: 2 }, async (_ctx, step) => {
      const [a, b] = await Promise.all([step.run("a", () => 1), step.run("b", () => 2)]);
      await step.sleep("nap", "1d");
      const done = await step.waitForEvent("done", { event: "done", timeout: "2d" });
      const child = await step.invoke("child", { workflow: "child" });
      await step.sendEvent("tell", { name: "told" });
      return [a, b, done?.data, child, await step.run("c", () => 3)];
    });
    made.workflow("child", {}, async (_ctx, step) => step.run("d", () => 4));
    return made;
  };
  const scenario = async (engine: TestEngine): Promise<void> => {
    await engine.send("done", { n: 1 }, { whenWaiting: "done" });
    const run = await engine.run("w");
    assert.deepEqual(run.output, [1, 2, { n: 1 }, 4, 3]);
  };
  assert.equal(await everyCrash(app, scenario, { faults: [fails("c")] }), 22);

  wf.workflow("none", { retries: 0 }, async (_ctx, step) => step.run("a", () => 1));
  await assert.rejects(
    everyCrash(wf, (engine) => engine.run("none")),
    /^CrashError: with a crash after op 1, its answer lost, runs\[0\]\.status is "failed", and "completed" without\n\nWith the crash:\nnone: failed, null\n.*crash {2}-> failed/,
  );
});

test("what only the process knew is missed after a crash", async () => {
  const app = (): Workflows<any> => {
    const made = registry();
    let known = 0;
    made.workflow("w", {}, async (_ctx, step) => {
      await step.run("a", () => (known += 1));
      await step.run("b", () => 1);
      return known;
    });
    return made;
  };

  await assert.rejects(
    everyCrash(app, (engine) => engine.run("w")),
    /with a crash after op 1, its answer stored, runs\[0\]\.output is 0, and 1 without\n/,
  );
});

test("the first difference that a crash makes is told first", async () => {
  const app = (): Workflows<any> => {
    const made = registry();
    let known = 0;
    made.workflow("w", {}, async (_ctx, step) => {
      await step.run("a", () => (known += 1));
      await step.run("b.c", () => ({ deep: [known, 2] }));
      if (known === 0) await step.run("d", () => 1);
      return 1;
    });
    return made;
  };
  const told = async (same?: (run: TestRun) => unknown): Promise<string> => {
    const options = same === undefined ? {} : { same };
    const error = await everyCrash(app, (engine) => engine.run("w"), options).catch((thrown: unknown) => thrown);
    return String(error).split("\n")[0]?.replace(/.* its answer stored, /, "") ?? "";
  };

  assert.equal(await told(), 'runs[0].steps["b.c"].output.deep[0] is 0, and 1 without');
  assert.equal(await told(({ steps }) => [...steps.keys()]), "runs[0] has 3 entries, and 2 without");
  assert.equal(await told(({ steps }) => ({ d: steps.get("d")?.status })), 'runs[0].d is "completed", and undefined without');
});

test("several steps an answer are lost together, and then go one by one", async () => {
  const wf = registry();
  wf.workflow("w", { checkpoint: { maxSteps: 3 } }, async (_ctx, step) => {
    for (let number = 0; number < 7; number += 1) await step.run("s", () => number);
  });
  const clean = new TestEngine(wf);
  await clean.run("w");
  const engine = new TestEngine(wf, { crashAfter: 5 });
  const run = await engine.run("w");

  assert.equal(clean.ops, 8);
  assert.deepEqual([...run.executed.values()], [1, 1, 1, 2, 2, 2, 1]);
  assert.deepEqual(run.timeline.ops[3], ["crash", null, "queued"]);
  assert.equal(run.status, "completed");
  assert.equal(await everyCrash(wf, (each) => each.run("w")), 16);
});
