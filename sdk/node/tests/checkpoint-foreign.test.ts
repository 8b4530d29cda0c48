/** Several ops in one answer, of code that also waits for something else than steps (protocol section 4). */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { NonRetriableError, type Step } from "../src/index.js";
import { answer, done, named, run } from "./checkpoint-answers.js";
import { type Body, turn } from "./engine.js";

test("code that has waited for something else than a step is answered step by step", async () => {
  const body: Body = async (_ctx, step) => {
    await step.run("a", () => 1);
    await sleep(2);
    await step.run("b", () => 2);
    await step.run("c", () => 3);
    await sleep(2);
    return 4;
  };

  assert.deepEqual(named(await answer(body)), done("a"));
  // The end of the run is for an answer of its own: what was waited for may be what a step has lost a race against.
  assert.equal((await run(body, 50)).answers, 3);
});

test("chains of which one waits for something else keep their results", async () => {
  const body: Body = async (_ctx, step) => {
    const first = async (): Promise<unknown[]> => {
      const a = await step.run("a", () => sleep(10));
      await sleep(30);
      return [a, await step.run("x", () => "first")];
    };
    const second = async (): Promise<unknown> => {
      await sleep(35);
      return step.run("x", () => "second");
    };
    return Promise.all([first(), second()]);
  };

  // In answers of two: the second would have its result under the id that the first asks for in a replay.
  assert.deepEqual((await run(body, 2)).ops.at(-1)?.["output"], [[null, "first"], "second"]);
});

test("a function that is left by its workflow ends the answer", async () => {
  const ops = await answer(async (_ctx, step) => {
    await step.run("a", () => 1);
    return Promise.race([step.run("b", () => sleep(10)), turn()]);
  });
  const thrown = await answer(async (_ctx, step) => {
    await step.run("a", () => 1);
    void step.run("b", () => sleep(10)).then(() => undefined);
    await turn();
    throw new Error("not asked");
  });

  assert.deepEqual(named(ops), done("a", "b"));
  assert.deepEqual(named(thrown), done("a", "b"));
});

test("code for which a step has lost a race says nothing of the run in the answer that has the step's result", async () => {
  const slow = (step: Step): Promise<string> => step.run("slow", () => sleep(10, "step"));
  const timer = (): Promise<string> => sleep(1, "timer");
  const bodies: Record<string, Body> = {
    waits: async (_ctx, step) => {
      const first = await Promise.race([slow(step), timer()]);
      await sleep(30);
      return first;
    },
    throws: async (_ctx, step) => {
      const first = await Promise.race([slow(step), timer()]);
      await sleep(30);
      throw new NonRetriableError(first);
    },
    "asks again": async (_ctx, step) => {
      const pending = slow(step);
      const first = await Promise.race([pending, timer()]);
      await pending;
      return first;
    },
    "asks again, and goes on": async (_ctx, step) => {
      const pending = slow(step);
      const first = await Promise.race([pending, timer()]);
      await pending;
      await step.run(`after the ${first}`, () => 1);
      return first;
    },
  };
  for (const [name, body] of Object.entries(bodies)) {
    assert.deepEqual(named(await answer(body)), done("slow"), name);
    const { ops } = await run(body, 50);
    const { ops: plain } = await run(body);
    assert.deepEqual(named(ops), named(plain), name);
    const { output, error } = ops.at(-1) ?? {};
    assert.equal(output ?? error.message, "step", name);
  }
});
