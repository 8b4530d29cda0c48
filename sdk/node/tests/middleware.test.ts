/** Middleware: hooks and their order, and values on their way to the engine and back. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Middleware, RetryAfterError } from "../src/index.js";
import { type Body, Lines, type Op, ask, drive, registry, turn } from "./engine.js";

const done = (output: unknown): Record<string, unknown> => ({ status: "completed", output });

/** Middleware that tells what it is told. */
function told(name: string, lines: string[]): Middleware {
  return {
    invocationStarts: (ctx) => void lines.push(`${name} starts ${ctx.runId}`),
    invocationEnds: async (_ctx, { status, error }) => {
      await turn();
      lines.push(`${name} ends ${[status, ...(error === null ? [] : [error.message])].join(" ")}`);
    },
    stepStarts: async (step) => {
      await turn();
      lines.push(`${name} step ${step.id} of ${step.name}, attempt ${step.attempt}, ${JSON.stringify(step.args)}`);
    },
    stepEnds: (step, outcome) => {
      const what = outcome.status === "completed" ? outcome.output : outcome.error;
      lines.push(`${name} step ${step.id} ${outcome.status} ${what}`);
    },
  };
}

const run = { id: "r", attempt: 0 };

test("hooks are called around invocations and steps, the first one outermost; not for what is replayed", async () => {
  const lines: string[] = [];
  const workflows = registry({ middleware: [told("a", lines), {}, told("b", lines)] });
  workflows.workflow("w", {}, async (_ctx, step) => {
    await step.run("one", () => lines.push("one"));
    await step.run("one", (by: number) => (lines.push("two"), by), 2);
    await step.sleep("nap", 1);
    throw new RangeError("at the end");
  });

  await ask(workflows, { one: done(1) }, { run: { id: "r", attempt: 1 } });
  assert.deepEqual(lines.splice(0), [
    "a starts r",
    "b starts r",
    "a step one:1 of one, attempt 1, [2]",
    "b step one:1 of one, attempt 1, [2]",
    "two",
    "b step one:1 completed 2",
    "a step one:1 completed 2",
    "b ends continues",
    "a ends continues",
  ]);
  await ask(workflows, { one: done(1), "one:1": done(2) }, { run });
  assert.deepEqual(lines.splice(0), ["a starts r", "b starts r", "b ends continues", "a ends continues"]);
  await ask(workflows, { one: done(1), "one:1": done(2), nap: done(null) }, { run });
  assert.deepEqual(lines.slice(2), ["b ends failed at the end", "a ends failed at the end"]);
});

test("a step that fails is told with what was thrown, and the answer waits for it", async () => {
  const lines: string[] = [];
  const workflows = registry({ middleware: [told("a", lines)] });
  const body: Body = async (_ctx, step) =>
    step.run("bad", () => {
      throw new RetryAfterError("later", "5s");
    });
  workflows.workflow("w", {}, body);
  const op = await ask(workflows, {}, { run });

  assert.deepEqual([op["op"], op["retry_after"]], ["step_failed", "5s"]);
  assert.deepEqual(lines.slice(2), ["a step bad failed RetryAfterError: later", "a ends continues later"]);
});

test("what a start throws fails the attempt, and those that have begun are told of the end", async () => {
  const lines: string[] = [];
  const bad = (hook: "invocationStarts" | "stepStarts"): Middleware => ({
    [hook]: () => {
      throw new Error("no connection");
    },
  });
  const executed: string[] = [];
  const ops: Op[] = [];
  for (const middleware of [bad("invocationStarts"), bad("stepStarts")]) {
    const workflows = registry({ middleware: [told("a", lines), middleware, told("c", lines)] });
    workflows.workflow("w", {}, async (_ctx, step) => step.run("one", () => executed.push("one")));
    ops.push(await ask(workflows, {}, { run }));
  }

  assert.deepEqual(executed, []);
  assert.deepEqual(
    ops.map((op) => [op["op"], op["error"].message, op["non_retriable"]]),
    [
      ["run_failed", "no connection", undefined],
      ["step_failed", "no connection", undefined],
    ],
  );
  assert.deepEqual(lines, [
    "a starts r",
    "a ends failed no connection",
    "a starts r",
    "c starts r",
    "a step one of one, attempt 0, []",
    "a step one failed Error: no connection",
    "c ends continues no connection",
    "a ends continues no connection",
  ]);
});

test("what an end throws is logged, and the result stands", async () => {
  const logger = new Lines();
  const fault = (): never => {
    throw new Error("no log");
  };
  const workflows = registry({ logger, middleware: [{ stepEnds: fault, invocationEnds: fault }] });
  workflows.workflow("w", {}, async (_ctx, step) => step.run("one", () => 1));

  assert.equal((await ask(workflows, {}, { run }))["output"], 1);
  assert.deepEqual(
    logger.all.map(([level, text]) => [level, text]),
    [
      ["error", "a middleware failed in stepEnds; the result stands"],
      ["error", "a middleware failed in invocationEnds; the result stands"],
    ],
  );
});

test("whatever an end comes to, the result stands: rejections, what is no error, a logger that throws", async () => {
  const refuses = Promise.reject.bind(Promise);
  const faults: (() => unknown)[] = [
    () => refuses(new Error("away")),
    () => refuses(AbortSignal.abort().reason), // of a call of its own that was given up
    () => refuses(undefined),
    () => ({ then: (_resolve: unknown, reject: (reason: unknown) => void) => reject("thenable") }),
    () => ({
      get then(): never {
        throw new Error("no then");
      },
    }),
  ];
  const broken = { ...new Lines(), all: [] } as unknown as Lines;
  broken.error = () => {
    throw new Error("the log is full");
  };
  for (const fault of faults) {
    for (const logger of [new Lines(), broken]) {
      const end = fault as () => Promise<void>;
      const told: string[] = [];
      const outer: Middleware = { stepEnds: (_step, { status }) => void told.push(status) };
      const workflows = registry({ logger, middleware: [outer, { stepEnds: end, invocationEnds: end }] });
      workflows.workflow("w", {}, async (_ctx, step) => step.run("one", () => 1));

      assert.equal((await ask(workflows, {}, { run }))["output"], 1);
      assert.deepEqual(told, ["completed"]);
      if (logger !== broken) assert.equal(logger.all.length, 2);
    }
  }
});

/** What is awaited though it is no promise: a query that runs when it is asked for its result, for example. */
function query<T>(result: () => T): PromiseLike<T> {
  return {
    then: (resolve, reject) => turn().then(result).then(resolve, reject),
  };
}

test("what a hook returns is awaited, a promise or not", async () => {
  const forbids = (): PromiseLike<never> =>
    query(() => {
      throw new Error("frozen account");
    });
  for (const hook of ["invocationStarts", "stepStarts", "encode", "decode"]) {
    const paid: number[] = [];
    const workflows = registry({ middleware: [{ [hook]: forbids }] });
    workflows.workflow("w", {}, async (_ctx, step) => step.run("pay", () => paid.push(1)));
    const op = await ask(workflows, {}, { run });

    assert.equal(op["error"].message, "frozen account");
    assert.equal(paid.length, hook === "encode" ? 1 : 0);
  }

  const lines: string[] = [];
  const workflows = registry({
    middleware: [
      {
        encode: (value) => query(() => ({ value })),
        decode: (stored) => query(() => (stored as { value?: unknown }).value ?? stored),
        stepEnds: () => query(() => void lines.push("step")) as Promise<void>,
        invocationEnds: () => query(() => void lines.push("invocation")) as Promise<void>,
      },
    ],
  });
  workflows.workflow("w", {}, async (_ctx, step) => (await step.run("one", (n: number) => n, 1)) + 1);
  const { ops } = await drive(workflows);

  assert.deepEqual(
    ops.map((op) => op["output"]),
    [{ value: 1 }, { value: 2 }],
  );
  assert.deepEqual(lines, ["step", "invocation", "invocation"]);
});

test("what a function has done is stored when the code has stopped waiting for it", async () => {
  const waysOut: ((made: Promise<string>, late: Promise<void>) => Promise<string>)[] = [
    (made, late) => Promise.race([made, late.then(() => "given up")]),
    (made, late) => Promise.race([made, late.then(() => Promise.reject(new Error("late")))]).catch(() => "given up"),
    async (made, late) => {
      const ended = await Promise.allSettled([Promise.any([made, late])]);
      return ended[0].status === "fulfilled" ? (ended[0].value ?? "given up") : "given up";
    },
  ];
  for (const wayOut of waysOut) {
    for (const hook of ["encode", "stepEnds"]) {
      for (const max_ops of [1, 50]) {
        const paid: number[] = [];
        let giveUp!: () => void;
        const slow = async (value: unknown): Promise<unknown> => {
          giveUp();
          for (let passes = 0; passes < 5; passes += 1) await turn();
          return value;
        };
        const workflows = registry({ middleware: [{ [hook]: slow }] });
        workflows.workflow("w", {}, async (_ctx, step) => {
          const late = new Promise<void>((resolve) => (giveUp = resolve));
          const pay = (): string => (paid.push(1), "paid");
          return [await wayOut(step.run("pay", pay), late), await step.run("last", () => "done")];
        });
        const { ops, memo } = await drive(workflows, { more: { max_ops } });

        assert.deepEqual(ops.at(-1)?.["output"], ["paid", "done"], `${hook}, ${max_ops} ops`);
        assert.equal(memo.get("pay")["output"], "paid");
        assert.equal(paid.length, 1);
      }
    }
  }
});
