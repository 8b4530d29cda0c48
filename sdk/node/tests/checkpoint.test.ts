/** Several ops in one answer: where it goes on, where it ends, and in which order (protocol section 4). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NonRetriableError, StepError, type Step } from "../src/index.js";
import { answer, done, named, run } from "./checkpoint-answers.js";
import { type Body, Lines, type Memo, askAll, drive, registry, turn } from "./engine.js";

const KIB = 1024;

/** A workflow of so many steps; what was executed. */
function counting(count: number): { body: Body; executed: number[] } {
  const executed: number[] = [];
  const body: Body = async (_ctx, step) => {
    let sum = 0;
    for (let number = 0; number < count; number += 1) {
      sum += await step.run("add", async () => {
        await turn();
        executed.push(number);
        return number;
      });
    }
    return sum;
  };
  return { body, executed };
}

test("one answer holds all steps and the end", async () => {
  const { body, executed } = counting(3);
  const ops = await answer(body);

  assert.deepEqual(named(ops), [...done("add", "add:1", "add:2"), "run_completed"]);
  assert.deepEqual([ops.at(-1)?.["output"], executed], [3, [0, 1, 2]]);
});

test("it ends at max_ops, and the next answer goes on", async () => {
  const { body, executed } = counting(5);
  const { ops, answers } = await run(body, 2);

  assert.deepEqual(named(ops), [...done("add", "add:1", "add:2", "add:3", "add:4"), "run_completed"]);
  assert.deepEqual([answers, ops.at(-1)?.["output"], executed], [3, 10, [0, 1, 2, 3, 4]]);
});

test("what is no number of ops is one op", async () => {
  for (const max_ops of [null, 0, 1, -5, true, "50", 2.5]) {
    const { body, executed } = counting(3);
    assert.equal((await answer(body, { max_ops })).length, 1);
    assert.deepEqual(executed, [0]);
  }
});

test("no step begins after the budget, which counts from the request; the first one always runs", async () => {
  const body: Body = async (_ctx, step) => {
    await step.run("slow", () => sleep(50));
    await step.run("late", () => 1);
  };
  const last: Body = async (_ctx, step) => step.run("slow", () => sleep(50));
  const nap: Body = async (_ctx, step) => {
    await step.run("slow", () => sleep(50));
    await step.sleep("nap", 1);
  };

  assert.deepEqual(named(await answer(body, { max_ops: 50, budget_ms: 20 })), done("slow"));
  const whole = await answer(body, { max_ops: 50, budget_ms: 60_000 });
  assert.deepEqual(named(whole), [...done("slow", "late"), "run_completed"]);
  assert.deepEqual(named(await answer(last, { max_ops: 50, budget_ms: 1 })), [...done("slow"), "run_completed"]);
  assert.deepEqual(named(await answer(nap, { max_ops: 50, budget_ms: 1 })), [...done("slow"), "sleep nap"]);
});

test("every other op is the last one", async () => {
  const calls: [string, (step: Step) => Promise<unknown>][] = [
    ["sleep", (step) => step.sleep("x", "1m")],
    ["sleep", (step) => step.sleep("x", 0)],
    ["wait_for_event", (step) => step.waitForEvent("x", { event: "paid" })],
    ["invoke", (step) => step.invoke("x", { workflow: "other" })],
    ["send_event", (step) => step.sendEvent("x", { name: "paid" })],
    ["step_failed", (step) => step.run("x", () => assert.fail("no"))],
  ];
  for (const [op, call] of calls) {
    const ops = await answer(async (_ctx, step) => {
      await step.run("before", () => 1);
      await call(step);
      await step.run("after", () => 1);
    });
    assert.deepEqual(named(ops), [...done("before"), `${op} x`]);
  }
});

test("the end may be an error, or a nested call", async () => {
  const thrown = await answer(async (_ctx, step) => {
    await step.run("before", () => 1);
    throw new Error("between steps");
  });
  const nested = await answer(async (_ctx, step) => {
    await step.run("before", () => 1);
    await step.run("outer", async () => {
      await step.run("inner", () => 1);
    });
  });

  assert.deepEqual(named(thrown), [...done("before"), "run_failed"]);
  assert.equal(thrown[1]?.["error"].message, "between steps");
  assert.deepEqual(named(nested), [...done("before"), "run_failed"]);
  assert.deepEqual([nested[1]?.["error"].name, nested[1]?.["non_retriable"]], ["NestedStepError", true]);
});

test("a result is what a later invocation reads", async () => {
  const body: Body = async (_ctx, step) => {
    const given = await step.run("given", () => ({ at: new Date(0), gone: undefined, list: [undefined] }));
    return given;
  };
  const wanted = { at: "1970-01-01T00:00:00.000Z", list: [null] };

  assert.deepEqual((await answer(body)).at(-1)?.["output"], wanted);
  assert.deepEqual((await run(body)).ops.at(-1)?.["output"], wanted);
});

test("a result over 64 KiB ends the answer", async () => {
  const ops = await answer(async (_ctx, step) => {
    await step.run("small", () => "");
    await step.run("big", () => "x".repeat(64 * KIB));
    await step.run("after", () => "");
  });

  assert.deepEqual(named(ops), done("small", "big"));
});

test("an answer ends once its ops exceed 4 MiB in UTF-8", async () => {
  const each = 60 * KIB;
  const limit = 4 * KIB * KIB;
  for (const letter of ["x", "é"]) {
    const ops = await answer(
      async (_ctx, step) => {
        for (let number = 0; number < 200; number += 1) {
          await step.run("s", () => letter.repeat(each / Buffer.byteLength(letter)));
        }
      },
      { max_ops: 1000 },
    );
    assert.ok(ops.length > limit / (each + 200) && ops.length <= limit / each + 1, `${ops.length}`);
  }
});

test("a last op that does not fit is left to the next answer", async () => {
  let executed = 0;
  const huge = "x".repeat(6 * KIB * KIB);
  const body: Body = async (_ctx, step) => {
    for (let number = 0; number < 60; number += 1) await step.run("s", () => "x".repeat(60 * KIB));
    await step.run("huge", () => ((executed += 1), huge));
    return huge;
  };
  const first = await answer(body, { max_ops: 1000 });
  const memo = Object.fromEntries(first.map((op) => [op["id"], { status: "completed", output: op["output"] }]));

  assert.equal(first.length, 60);
  assert.deepEqual(named(await answer(body, { max_ops: 1000 }, memo)), done("huge"));
  assert.equal(executed, 2);

  const after: Memo = { ...memo, huge: { status: "completed", output: "" } };
  delete after["s:59"];
  assert.deepEqual(named(await answer(body, { max_ops: 1000 }, after)), [...done("s:59"), "run_completed"]);
});

test("attempts of the step before do not count for the next, nor in the log", async () => {
  const seen: number[] = [];
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, async (ctx, step) => {
    await step.run("a", () => seen.push(ctx.attempt));
    await step.run("b", () => {
      seen.push(ctx.attempt);
      throw new Error("no");
    });
  });
  await askAll(workflows, {}, { max_ops: 50, run: { id: "r", attempt: 2 } });

  assert.deepEqual(seen, [2, 0]);
  assert.equal(logger.all.length, 1);
  assert.match(String(logger.all[0]?.[1]), /^workflow w, run r, step b: attempt 1 failed: Error: no\n/);
});

test("ids that differ at every call are noticed", async () => {
  let calls = 0;
  const workflows = registry();
  workflows.workflow("w", {}, async (_ctx, step) => {
    for (;;) await step.run(`s${(calls += 1)}`, () => 1);
  });
  const { ops, answers } = await drive(workflows, { most: 150, more: { max_ops: 5 } });

  assert.deepEqual([ops.at(-1)?.["error"].name, answers], ["NonDeterminismError", 101]);
});

test("lines are logged once", async () => {
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, async (ctx, step) => {
    for (let number = 0; number < 5; number += 1) {
      ctx.logger.info(`before ${number}`);
      await step.run("s", () => number);
    }
    ctx.logger.info("end");
  });
  await drive(workflows, { more: { max_ops: 2 } });

  const lines = logger.all.map(([, line]) => line);
  assert.deepEqual(lines, ["before 0", "before 1", "before 2", "before 3", "before 4", "end"]);
});

test("a step that failed for good is caught, and the code goes on", async () => {
  const { ops, answers } = await run(async (_ctx, step) => {
    await step.run("a", () => 1);
    try {
      await step.run("b", () => {
        throw new NonRetriableError("no");
      });
    } catch (error) {
      await step.run("c", () => 1);
      return (error as StepError).message;
    }
    return "never";
  }, 50);

  assert.deepEqual(named(ops), [...done("a"), "step_failed b", ...done("c"), "run_completed"]);
  assert.deepEqual([ops.at(-1)?.["output"], answers], ["no", 2]);
});

test("steps started together run in call order in one answer", async () => {
  let running = 0;
  const ops = await answer(async (_ctx, step) => {
    const numbers = [0, 1, 2, 3].map((number) =>
      step.run("s", async () => {
        assert.equal((running += 1), 1);
        await sleep(4 - number);
        running -= 1;
        return number;
      }),
    );
    return [...(await Promise.all(numbers)), await step.run("after", () => 4)];
  });

  assert.deepEqual(named(ops), [...done("s", "s:1", "s:2", "s:3", "after"), "run_completed"]);
  assert.deepEqual(ops.at(-1)?.["output"], [0, 1, 2, 3, 4]);
});

test("max_ops ends within steps started together, and what is stored and new may be mixed", async () => {
  const body: Body = async (_ctx, step) =>
    Promise.all([0, 1, 2, 3, 4].map((number) => step.run(`s${number}`, () => number)));
  const { ops, answers } = await run(body, 2);
  const mixed = await answer(body, { max_ops: 50 }, { s1: { status: "completed", output: "kept" } });

  assert.deepEqual(named(ops), [...done("s0", "s1", "s2", "s3", "s4"), "run_completed"]);
  assert.deepEqual([answers, ops.at(-1)?.["output"]], [3, [0, 1, 2, 3, 4]]);
  assert.deepEqual(named(mixed), [...done("s0", "s2", "s3", "s4"), "run_completed"]);
  assert.deepEqual(mixed.at(-1)?.["output"], [0, "kept", 2, 3, 4]);
});

test("a sleep among steps started together has its turn", async () => {
  const ops = await answer(async (_ctx, step) =>
    Promise.all([step.run("a", () => 1), step.sleep("nap", "1m"), step.run("b", () => 2)]),
  );

  assert.deepEqual(named(ops), [...done("a"), "sleep nap"]);
});

test("chains that share ids have the results that they have step by step", async () => {
  const body: Body = async (_ctx, step) => {
    const chain = async (name: string): Promise<string[]> => {
      const made: string[] = [];
      for (let number = 0; number < 3; number += 1) {
        made.push(await step.run("x", () => turn().then(() => `${name}${number}`)));
      }
      return made;
    };
    return Promise.all([chain("a"), chain("b")]);
  };
  const [plain, several] = [await run(body), await run(body, 50)];

  assert.deepEqual(several.ops.at(-1)?.["output"], [
    ["a0", "a1", "a2"],
    ["b0", "b1", "b2"],
  ]);
  assert.deepEqual([...several.memo], [...plain.memo]);
});

test("after the end nothing goes on, and nothing is rejected that nobody handles", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  const went: string[] = [];
  const ops = await answer(
    async (_ctx, step) => {
      try {
        await Promise.all([
          step.run("s0", () => 0),
          step.run("s1", () => assert.fail("no")),
          step.run("s2", () => went.push("s2")),
        ]);
      } catch {
        went.push("caught");
      } finally {
        went.push("finally");
      }
    },
    { max_ops: 50 },
  );
  await turn();
  process.off("unhandledRejection", note);

  assert.deepEqual([named(ops), went, unhandled], [[...done("s0"), "step_failed s1"], [], []]);
});
