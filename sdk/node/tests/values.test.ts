/** Values through JSON, and errors on the wire. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NonRetriableError, RetryAfterError, SerializationError } from "../src/index.js";
import { encode } from "../src/values.js";
import { Lines, invoke } from "./engine.js";

class Invoice {
  total = 1;
}

test("what JSON can hold is encoded as JSON.stringify does", () => {
  const values: unknown[] = [
    null,
    true,
    0,
    -0,
    1.5,
    1e21,
    "",
    "é\u2028\ud800",
    [],
    {},
    [[]],
    [undefined, 1],
    { a: undefined, b: null },
    { nested: { list: [{}, [1, "2"]] } },
    new Date(0),
    new URL("https://a.test/"),
    Object.create(null),
    JSON.parse('{"__proto__": {"x": 1}}'),
    { toJSON: () => ({ made: true }) },
    { "1": 1, a: 2 },
  ];
  for (const value of values) assert.equal(encode(value), JSON.stringify(value));
  assert.equal(encode(undefined), "null");
});

test("what JSON cannot hold is refused by place and type", () => {
  const circle: unknown[] = [];
  circle.push({ again: circle });
  let deep: unknown = 1;
  for (let level = 0; level < 100_000; level += 1) deep = [deep];
  const refused: [unknown, RegExp][] = [
    [Number.NaN, /^it is NaN: JSON has no NaN/],
    [{ a: [1, Number.POSITIVE_INFINITY] }, /^it\["a"\]\[1\] is Infinity/],
    [1n, /of the type bigint/],
    [{ f: () => 1 }, /^it\["f"\] is of the type function/],
    [[Symbol("s")], /of the type symbol/],
    [new Map([[1, 2]]), /of the type Map/],
    [new Set(), /of the type Set/],
    [Buffer.from("a"), /of the type Buffer.*base64/],
    [new Uint8Array(1), /of the type Uint8Array.*base64/],
    [new Error("x"), /of the type Error/],
    [new Invoice(), /of the type Invoice.*plain object/],
    [Promise.resolve(1), /of the type Promise/],
    [new Date(Number.NaN), /invalid Date/],
    [circle, /^it\[0\]\["again"\] contains itself/],
    [deep, /nested too deeply/],
  ];
  for (const [value, message] of refused) {
    assert.throws(
      () => encode(value, "it"),
      (error) => error instanceof SerializationError && message.test(error.message),
      String(message),
    );
  }
});

test("a step or workflow that returns what JSON cannot hold fails for good", async () => {
  const step = await invoke(async (_ctx, step) => step.run("a", () => ({ x: Number.NaN })));
  const whole = await invoke(async () => new Map());

  assert.deepEqual(
    [step["op"], step["non_retriable"], step["error"].name],
    ["step_failed", true, "SerializationError"],
  );
  assert.match(step["error"].message, /the return value of step "a"\["x"\] is NaN/);
  assert.deepEqual([whole["op"], whole["non_retriable"]], ["run_failed", true]);
});

async function failed(thrown: unknown): Promise<Record<string, any>> {
  const inside = await invoke(async (_ctx, step) =>
    step.run("a", () => {
      throw thrown;
    }),
  );
  const outside = await invoke(async () => {
    throw thrown;
  });
  assert.deepEqual([inside["op"], outside["op"]], ["step_failed", "run_failed"]);
  assert.deepEqual(inside["error"], outside["error"]);
  assert.deepEqual(
    [inside["non_retriable"], inside["retry_after"]],
    [outside["non_retriable"], outside["retry_after"]],
  );
  return inside;
}

test("errors are described by name, message and stack", async () => {
  class Declined extends Error {}
  const declined = await failed(new Declined("no money", { cause: new Error("bank closed") }));

  assert.deepEqual([declined["error"].name, declined["error"].message], ["Declined", "no money"]);
  assert.match(declined["error"].stack, /values\.test.*Caused by: Error: bank closed/s);
  assert.deepEqual((await failed("a text"))["error"], { name: "Error", message: "a text" });
  assert.deepEqual((await failed(undefined))["error"], { name: "Error", message: "undefined" });
  assert.deepEqual((await failed({ message: "like one" }))["error"], { name: "Error", message: "like one" });
  assert.equal((await failed(new Error("x".repeat(20_000))))["error"].message.length, 8192);
  assert.equal(
    (
      await failed({
        get message(): string {
          throw new Error("hostile");
        },
      })
    )["error"].name,
    "Error",
  );
});

test("not again, and again after", async () => {
  const after = async (when: string | number | Date): Promise<unknown> =>
    (await failed(new RetryAfterError("wait", when)))["retry_after"];

  assert.equal((await failed(new NonRetriableError("no")))["non_retriable"], true);
  assert.equal((await failed(new Error("again")))["non_retriable"], undefined);
  assert.deepEqual(
    await Promise.all([after("30s"), after(2.5), after(new Date(0)), after(Number.NaN), after(new Date(Number.NaN))]),
    ["30s", 2.5, "1970-01-01T00:00:00.000Z", "NaN", "Invalid Date"],
  );
});

test("an AggregateError is as retriable as its least retriable member", async () => {
  const one = await failed(new AggregateError([new NonRetriableError("alone")]));
  const two = await failed(new AggregateError([new RetryAfterError("wait", 1), new NonRetriableError("no")]));
  const mild = await failed(new AggregateError([new Error("a"), new RetryAfterError("wait", 1)], "both"));

  assert.deepEqual([one["error"].name, one["non_retriable"]], ["NonRetriableError", true]);
  assert.deepEqual([two["error"].name, two["non_retriable"], two["retry_after"]], ["AggregateError", true, undefined]);
  assert.deepEqual([mild["error"].message, mild["non_retriable"], mild["retry_after"]], ["both", undefined, 1]);
});

test("each failed attempt is a line in the log, with its number, above the stack", async () => {
  const logger = new Lines();
  const run = { id: "r1", attempt: 2 };
  await invoke(
    async (_ctx, step) =>
      step.run("a", () => {
        throw new Error("no");
      }),
    {},
    { logger },
    { run },
  );
  await invoke(
    async () => {
      throw new Error("never");
    },
    {},
    { logger },
    { run },
  );

  const lines = logger.all.map(([level, text]) => [level, ...String(text).split("\n", 2)]);
  assert.deepEqual(
    lines.map((line) => line.slice(0, 2)),
    [
      ["warn", "workflow w, run r1, step a: attempt 3 failed: Error: no"],
      ["warn", "workflow w, run r1: attempt 3 failed: Error: never"],
    ],
  );
  for (const line of lines) assert.match(String(line[2]), /^    at .*values\.test\.js:\d+/);
});

test("an error that says itself what comes next is one line in the log", async () => {
  for (const error of [new NonRetriableError("no such card"), new RetryAfterError("later", "1m")]) {
    const logger = new Lines();
    await invoke(
      async (_ctx, step) =>
        step.run("a", () => {
          throw error;
        }),
      {},
      { logger },
      { run: { id: "r1", attempt: 0 } },
    );
    assert.deepEqual(logger.all, [
      ["warn", `workflow w, run r1, step a: attempt 1 failed: ${error.name}: ${error.message}`],
    ]);
  }
});
