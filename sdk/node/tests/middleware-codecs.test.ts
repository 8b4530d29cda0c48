/** Middleware that encodes what is stored, and decodes it for the code. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Middleware } from "../src/index.js";
import { type Body, type Op, ask, askAll, drive, registry, turn } from "./engine.js";
import { encryption } from "./encryption.js";

const done = (output: unknown): Record<string, unknown> => ({ status: "completed", output });
const run = { id: "r", attempt: 0 };

/** Middleware that writes its name around a value. */
const wrap = (name: string): Middleware => ({
  encode: async (value, where) => {
    await turn();
    return { [`${name}-${where}`]: value };
  },
  decode: (value, where) => (value as Record<string, unknown>)[`${name}-${where}`],
});

test("values are encoded in the order of the list and decoded in reverse, whatever they are", async () => {
  const workflows = registry({ middleware: [wrap("a"), wrap("b")] });
  const seen: unknown[] = [];
  workflows.workflow("w", {}, async (ctx, step) => {
    seen.push(ctx.event.data);
    seen.push(await step.run("run", (n: number) => n + 1, 1));
    seen.push((await step.waitForEvent("wait", { event: "x" }))?.data);
    seen.push(await step.waitForEvent("late", { event: "x" }));
    seen.push(await step.sleep("nap", 1));
    seen.push(await step.invoke("child", { workflow: "v", data: { n: 1 } }));
    seen.push(await step.sendEvent("tell", [{ name: "y" }, { name: "z", data: { n: 2 } }]));
    return "end";
  });
  const data = (value: unknown): object => ({ "b-event": { "a-event": value } });
  const step = (value: unknown): object => done({ "b-step": { "a-step": value } });
  const event = { id: "e", name: "x", data: data({ n: 0 }), ts: 1 };
  const memo: Record<string, Record<string, unknown>> = {};
  const next = (): Promise<Op> => ask(workflows, memo, { run, event });

  const { duration_ms: _, ...op } = await next();
  assert.deepEqual(op, {
    op: "step_completed",
    id: "run",
    name: "run",
    input: { "b-step": { "a-step": [1] } },
    output: { "b-step": { "a-step": 2 } },
  });
  memo["run"] = step(2) as Record<string, unknown>;
  await next();
  memo["wait"] = done({ ...event, data: data({ waited: true }) });
  memo["late"] = done(null);
  memo["nap"] = done(null);
  assert.deepEqual((await next())["data"], data({ n: 1 }));
  memo["child"] = done({ "b-run": { "a-run": 3 } });
  assert.deepEqual((await next())["events"], [
    { name: "y", data: data({}) },
    { name: "z", data: data({ n: 2 }) },
  ]);
  memo["tell"] = done({ ids: ["1", "2"] });
  seen.length = 0;
  assert.deepEqual(await next(), { op: "run_completed", output: { "b-run": { "a-run": "end" } } });
  assert.deepEqual(seen, [{ n: 0 }, 2, { waited: true }, null, null, 3, { ids: ["1", "2"] }]);
});

test("a step that failed for good is thrown as ever, and results that JSON cannot hold are refused before", async () => {
  const workflows = registry({ middleware: [wrap("a")] });
  workflows.workflow("w", {}, async (_ctx, step) => {
    const caught = await step.run("bad", () => 1).catch((error: unknown) => String(error));
    return step.run("nan", () => ({ caught, n: Number.NaN }));
  });
  const op = await ask(workflows, { bad: { status: "failed", error: { name: "E", message: "no" } } });

  assert.equal(op["error"].message, 'the return value of step "nan"["n"] is NaN: JSON has no NaN and no infinity');
});

test("what cannot be decoded or encoded fails the attempt and not the step that is stored", async () => {
  const fault = (what: string): never => {
    throw new Error(what);
  };
  const ops: Op[] = [];
  const faults: Middleware[] = [
    { decode: (value, where) => (where === "event" ? fault("event") : value) },
    { decode: (value, where) => (where === "step" ? fault("step") : value) },
    { encode: (value, where) => (where === "step" ? fault("result") : value) },
    { encode: (value, where) => (where === "event" ? fault("data") : value) },
    { encode: (_value, where) => (where === "event" ? "text" : 1) },
    { encode: (value, where) => (where === "run" ? fault("output") : value) },
  ];
  for (const [index, middleware] of faults.entries()) {
    const workflows = registry({ middleware: [middleware] });
    workflows.workflow("w", {}, async (_ctx, step) => {
      try {
        await step.run("a", () => 1);
        await step.run("b", () => 2);
        if (index > 2 && index < 5) await step.sendEvent("c", { name: "x" });
      } catch {
        return "swallowed";
      }
      return "end";
    });
    const memo = index === 2 ? { a: done(1) } : { a: done(1), b: done(2) };
    ops.push(await ask(workflows, memo));
  }

  assert.deepEqual(
    ops.map((op) => [op["op"], op["error"].message, op["non_retriable"]]),
    [
      ["run_failed", "event", undefined],
      ["run_failed", "step", undefined],
      ["step_failed", "result", undefined],
      ["run_failed", "data", undefined],
      ["run_failed", "data of an event must be encoded as an object, not string", true],
      ["run_failed", "output", undefined],
    ],
  );
});

test("steps that run together keep their order, however long decoding takes", async () => {
  let calls = 0;
  const slow: Middleware = {
    encode: (value) => ({ value }),
    decode: async (stored) => {
      await sleep(((calls += 1) * 7) % 5);
      return (stored as { value?: unknown }).value ?? stored;
    },
  };
  const body: Body = async (_ctx, step) => {
    const chain = async (name: string, count: number): Promise<unknown[]> => {
      const made: unknown[] = [];
      for (let number = 0; number < count; number += 1) made.push(await step.run("x", () => `${name}${number}`));
      return made;
    };
    return Promise.all([chain("a", 3), chain("b", 2), step.run("x", () => "c")]);
  };
  const outputs: unknown[] = [];
  for (const max_ops of [1, 2, 50]) {
    const workflows = registry({ middleware: [slow] });
    workflows.workflow("w", {}, body);
    const { ops } = await drive(workflows, { more: { max_ops, event: { id: "e", name: "x", data: {}, ts: 1 } } });
    outputs.push(ops.at(-1)?.["output"]);
  }

  const wanted = { value: [["a0", "a1", "a2"], ["b0", "b1"], "c"] };
  assert.deepEqual(outputs, [wanted, wanted, wanted]);
});

test("with a checkpoint, code goes on with what a replay would decode", async () => {
  const workflows = registry({
    middleware: [{ encode: (value) => ({ value }), decode: (value) => ({ decoded: value }) }],
  });
  workflows.workflow("w", {}, async (_ctx, step) => step.run("b", (a: unknown) => a, await step.run("a", () => 1)));
  const ops = await askAll(workflows, {}, { max_ops: 50 });

  assert.deepEqual(ops[1]?.["output"], { value: { decoded: { value: 1 } } });
  assert.deepEqual(ops[2]?.["output"], { value: { decoded: ops[1]?.["output"] } });
});

test("encrypted, nothing that is stored can be read, and the workflow knows nothing of it", async () => {
  const secret = new Uint8Array(32).fill(7);
  const workflows = registry({ middleware: [await encryption(secret)] });
  workflows.workflow("w", {}, async (ctx, step) => {
    const card = await step.run("card", (id: string) => ({ number: `4111-${id}` }), "secret-argument");
    await step.sendEvent("tell", { name: "order.paid", data: { order_id: "o-1", card } });
    return { card, from: ctx.event.data["order_id"] };
  });
  const event = { id: "e", name: "order.created", data: { order_id: "o-1" }, ts: 1 };
  const { ops, memo } = await drive(workflows, { more: { event } });
  const text = JSON.stringify(ops);

  assert.ok(!/4111|secret-argument/.test(text), text);
  assert.match(memo.get("card").output, /^aes:/);
  assert.deepEqual(Object.keys(ops[1]?.["events"][0].data), ["order_id", "sealed"]);
  const { decode } = await encryption(secret);
  const wanted = { card: { number: "4111-secret-argument" }, from: "o-1" };
  assert.deepEqual(await decode?.(ops[2]?.["output"], "run"), wanted);

  const other = registry({ middleware: [await encryption(new Uint8Array(32))] });
  other.workflow("w", {}, async (_ctx, step) => step.run("card", () => "made again").catch(() => "swallowed"));
  const op = await ask(other, Object.fromEntries(memo), { event });
  assert.deepEqual([op["op"], op["error"].message], ["run_failed", "a value was encrypted with another key"]);
});
