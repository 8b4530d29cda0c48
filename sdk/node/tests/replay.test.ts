/** The replay rules (protocol section 7). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Context, InvokeError, type Step, StepError } from "../src/index.js";
import { type Body, type Op, ask, executeText, invoke, registry, runToEnd, seal, turn } from "./engine.js";

const done = (output: unknown): Record<string, unknown> => ({ status: "completed", output });

test("a run goes from step to step, and each body is executed once", async () => {
  const executed: string[] = [];
  const ops = await runToEnd(async (_ctx, step) => {
    const a = await step.run(
      "a",
      (x: number) => {
        executed.push("a");
        return { sum: x + 1 };
      },
      1,
    );
    await step.sleep("nap", "10m");
    await step.sleepUntil("morning", new Date("2030-01-02T03:04:05Z"));
    const shipped = await step.waitForEvent("shipped", {
      event: "order.shipped",
      match: "data.id",
      if: "true",
      timeout: "3d",
      lookback: "run",
    });
    await step.invoke("child", { workflow: "other", data: { n: 1 }, timeout: 60 });
    const sent = await step.sendEvent("tell", [{ name: "told", data: { a }, ts: new Date(5) }, { name: "too" }]);
    return { a, shipped, sent };
  });

  const [a, ...rest] = ops.map(({ duration_ms, ...op }) => op);
  assert.deepEqual(executed, ["a"]);
  assert.equal(typeof ops[0]?.["duration_ms"], "number");
  assert.deepEqual(a, { op: "step_completed", id: "a", name: "a", input: [1], output: { sum: 2 } });
  assert.deepEqual(rest, [
    { op: "sleep", id: "nap", name: "nap", duration: "10m" },
    { op: "sleep", id: "morning", name: "morning", until: "2030-01-02T03:04:05.000Z" },
    {
      op: "wait_for_event",
      id: "shipped",
      name: "shipped",
      event: "order.shipped",
      match: "data.id",
      if: "true",
      timeout: "3d",
      lookback: "run",
    },
    { op: "invoke", id: "child", name: "child", workflow: "other", data: { n: 1 }, timeout: 60 },
    {
      op: "send_event",
      id: "tell",
      name: "tell",
      events: [{ name: "told", data: { a: { sum: 2 } }, ts: 5 }, { name: "too" }],
    },
    { op: "run_completed", output: { a: { sum: 2 }, shipped: null, sent: { ids: ["01J0000000000000000000000C"] } } },
  ]);
});

test("steps started together run one after another, in call order", async () => {
  const executed: string[] = [];
  const body: Body = async (_ctx, step) =>
    Promise.all(
      ["a", "b", "c"].map((id) =>
        step.run(id, () => {
          executed.push(id);
          return id.toUpperCase();
        }),
      ),
    );

  const ops = await runToEnd(body);

  assert.deepEqual(
    ops.map((op) => op["id"]),
    ["a", "b", "c", undefined],
  );
  assert.deepEqual(executed, ["a", "b", "c"]);
  assert.deepEqual(ops.at(-1)?.["output"], ["A", "B", "C"]);
});

test("what is called beside an executing step never settles, and its functions are not called", async () => {
  const executed: string[] = [];
  const slow = async (): Promise<string> => {
    executed.push("a");
    await turn();
    await turn();
    return "slow";
  };
  const op = await invoke(async (_ctx, step) => {
    const beside = (async () => {
      await turn();
      await step.run("b", () => executed.push("b"));
      executed.push("after b");
    })();
    await Promise.all([step.run("a", slow), beside]);
    executed.push("after all");
  });
  await turn();

  assert.deepEqual([op["op"], op["id"], op["output"]], ["step_completed", "a", "slow"]);
  assert.deepEqual(executed, ["a"]);
});

test("code that catches everything cannot swallow the end of the invocation", async () => {
  const executed: string[] = [];
  const bodies: Body[] = [
    async (_ctx, step) => {
      try {
        await step.run("a", () => executed.push("a"));
      } catch {
        await step.run("b", () => executed.push("b"));
      }
      return 1;
    },
    async (_ctx, step) => {
      try {
        await step.run("a", () => executed.push("a"));
      } finally {
        return 1;
      }
    },
    async (_ctx, step) => Promise.race([step.run("a", () => executed.push("a")), Promise.resolve(1)]),
    async (_ctx, step) => {
      const slow = async (): Promise<void> => {
        executed.push("a");
        await turn();
        await turn();
      };
      return Promise.race([step.run("a", slow), turn()]);
    },
    async (_ctx, step) => Promise.any([step.run("a", () => executed.push("a")), turn()]),
    async (_ctx, step) => {
      void step.run("a", () => executed.push("a")).then(() => undefined);
      throw new Error("later");
    },
    async (_ctx, step) => {
      await Promise.race([
        step.run("a", async () => {
          executed.push("a");
          await turn();
          await turn();
        }),
        turn(),
      ]);
      await step.run("b", () => executed.push("b"));
    },
  ];
  for (const body of bodies) {
    executed.length = 0;
    const op = await invoke(body);
    assert.deepEqual([op["op"], op["id"], executed], ["step_completed", "a", ["a"]], String(body));
  }
});

test("a step inside the function of another is refused, for good, by both names", async () => {
  const executed: string[] = [];
  const op = await invoke(async (_ctx, step) => {
    await step.run("outer", async () => {
      try {
        await step.run("inner", () => executed.push("inner"));
      } catch {
        executed.push("caught");
      }
    });
  });

  assert.equal(op["op"], "run_failed");
  assert.equal(op["non_retriable"], true);
  assert.equal(op["error"].name, "NestedStepError");
  assert.match(op["error"].message, /"inner" was called inside step "outer"/);
  assert.deepEqual(executed, []);
});

test("a nested step is refused where the outer function has awaited something before", async () => {
  const op = await invoke(async (_ctx, step) =>
    step.run("outer", async () => {
      await turn();
      await step.sleep("inner", 1);
    }),
  );

  assert.equal(op["error"].name, "NestedStepError");
});

test("a step that was called outside and is awaited inside the function of another is a nested one", async () => {
  const op = await invoke(async (_ctx, step) => {
    const inner = step.run("inner", () => 1);
    await step.run("outer", async () => {
      await turn();
      return (await inner) + 1;
    });
  });

  assert.match(op["error"].message, /"inner" was called inside step "outer"/);
});

test("a step that is not awaited is no argument of another, and not what its function returns", async () => {
  const bodies: [Body, string, RegExp][] = [
    [
      async (_ctx, step) => {
        const a = step.run("a", () => 1);
        return step.run("b", (value) => value, a);
      },
      "StepArgumentError",
      /^step "a" was not awaited: await it before its result is given to step "b"$/,
    ],
    [
      async (_ctx, step) => {
        const a = step.sleep("a", 1);
        return step.options({ retries: 0 }).run("b", (_n: number, value) => value, 1, a);
      },
      "StepArgumentError",
      /^step "a" was not awaited/,
    ],
    [
      async (_ctx, step) => {
        const a = step.run("a", () => 1);
        return step.run("b", () => a);
      },
      "NestedStepError",
      /"a" was called inside step "b"/,
    ],
    [
      async (_ctx, step) => {
        const a = step.run("a", () => 1);
        return step.run("b", async () => a);
      },
      "NestedStepError",
      /"a" was called inside step "b"/,
    ],
    [
      async (_ctx, step) => {
        const a = step.run("a", () => 1);
        return step.run("b", async () => {
          await turn();
          return Promise.all([a]);
        });
      },
      "NestedStepError",
      /"a" was called inside step "b"/,
    ],
  ];
  for (const [body, name, message] of bodies) {
    const op = await invoke(body);
    assert.deepEqual([op["op"], op["error"].name, op["non_retriable"]], ["run_failed", name, true], String(body));
    assert.match(op["error"].message, message);
  }
});

test("a step that has been awaited may be given on", async () => {
  const ops = await runToEnd(async (_ctx, step) => {
    const a = step.run("a", () => 1);
    await a;
    return step.run("b", async (value: Promise<number>) => (await value) + 1, a);
  });

  assert.equal(ops.at(-1)?.["output"], 2);
});

test("step functions of two invocations at once are no nested ones", async () => {
  const workflows = registry();
  const ops: Op[] = [];
  workflows.workflow("w", {}, async (_ctx, step) =>
    step.run("a", async () => {
      await turn();
      return 1;
    }),
  );
  workflows.workflow("v", {}, async (_ctx, step) =>
    step.run("outer", async () => {
      ops.push(await ask(workflows, {}));
      return 2;
    }),
  );

  const op = await ask(workflows, {}, { workflow: "v" });

  assert.deepEqual([op["op"], op["output"], ops[0]?.["output"]], ["step_completed", 2, 1]);
});

test("a step call that nobody awaits is refused", async () => {
  const executed: string[] = [];
  const op = await invoke(async (_ctx, step) => {
    step.run("forgotten", () => executed.push("a"));
    step.sleep("too", 1);
    return 1;
  });

  assert.deepEqual([op["op"], op["error"].name, op["non_retriable"]], ["run_failed", "StepNotAwaitedError", true]);
  assert.match(op["error"].message, /"forgotten", "too"/);
  assert.deepEqual(executed, []);
});

test("a promise of a step may be returned, kept, and awaited late", async () => {
  const returned = await runToEnd((_ctx, step) => step.run("a", () => 1));
  const late = await runToEnd(async (_ctx, step) => {
    const b = step.run("b", () => 2);
    const c = step.run("c", () => 3);
    return [await b, await c, await b].concat(await c.finally(() => undefined));
  });

  assert.deepEqual(
    returned.map((op) => op["output"]),
    [1, 1],
  );
  assert.deepEqual(
    late.map((op) => op["output"]),
    [2, 3, [2, 3, 2, 3]],
  );
});

test("a step that failed for good throws StepError, which may be caught", async () => {
  const caught: StepError[] = [];
  const memo = { a: { status: "failed", error: { name: "Declined", message: "no money", stack: "at bank" } } };
  const op = await invoke(async (_ctx, step) => {
    try {
      await step.run("a", () => 1);
    } catch (error) {
      if (error instanceof StepError) caught.push(error);
    }
    return "compensated";
  }, memo);
  const [error] = caught;

  assert.equal(op["output"], "compensated");
  assert.ok(error instanceof Error && !(error instanceof InvokeError));
  assert.deepEqual([error.name, error.message, error.stepId, error.stack], ["Declined", "no money", "a", "at bank"]);
  assert.equal(String(error), 'step "a" failed: Declined: no money');
});

test("a StepError that is not caught fails the run for good with the original error", async () => {
  const bare = { a: { status: "failed", error: { name: "Declined", message: "no money" } } };
  const body: Body = async (_ctx, step) => step.run("a", () => 1);
  const { op, non_retriable, error } = (await invoke(body, bare)) as any;

  assert.deepEqual(
    { op, non_retriable, error },
    { op: "run_failed", non_retriable: true, error: { name: "Declined", message: "no money" } },
  );
});

test("a failed invoke throws InvokeError, and an error may be a text", async () => {
  const caught: unknown[] = [];
  await invoke(
    async (_ctx, step) => {
      await step.invoke("c", { workflow: "v" }).catch((error: unknown) => caught.push(error));
    },
    { c: { status: "failed", error: "lost" } },
  );

  assert.ok(caught[0] instanceof InvokeError);
  assert.deepEqual([caught[0].name, caught[0].message], ["Error", "lost"]);
});

test("results may be named as members of Object.prototype are", async () => {
  const op = await invoke(
    async (_ctx, step) => [await step.run("constructor", () => 2), await step.run("__proto__", () => 1)],
    {
      constructor: done(1),
    },
  );

  assert.deepEqual([op["id"], op["output"]], ["__proto__", 1]);
});

test("an unknown status is neither returned nor run again", async () => {
  const op = await invoke(async (_ctx, step) => step.run("a", () => 1), { a: { status: "paused" } });

  assert.deepEqual([op["op"], op["error"].name], ["run_failed", "UnknownStepStatusError"]);
});

test("an answer says when its sleep was asked for", async () => {
  const workflows = registry();
  workflows.workflow("w", {}, async (_ctx: Context, step: Step) => {
    await step.run("a", () => 1);
    await step.sleep("nap", "10m");
  });
  const answer = async (memo: Record<string, unknown>, more = {}): Promise<Record<string, any>> => {
    const { body, headers } = await seal(executeText(memo as never, more));
    return JSON.parse((await workflows.handleRequest(body, headers)).body) as Record<string, any>;
  };
  assert.equal("asked_at" in (await answer({})), false);
  for (const [memo, more] of [[{ a: done(1) }, {}] as const, [{}, { max_ops: 5 }] as const]) {
    const before = Date.now();
    const answered = await answer(memo, more);
    assert.deepEqual(answered["ops"].at(-1), { op: "sleep", id: "nap", name: "nap", duration: "10m" });
    assert.ok(before <= answered["asked_at"] && answered["asked_at"] <= Date.now() + 1);
  }
});
