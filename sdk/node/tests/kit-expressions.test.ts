/** The expressions of the kit for tests, against the rule book of the protocol's test data. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { ExpressionError } from "../src/testing.js";
import { condition, parse } from "../src/testing/expression.js";
import { isTrue } from "../src/testing/json-values.js";

const DATA = new URL("../../../../tests/vectors/data/", import.meta.url);

type Row = { id: string; expr: string; env: any; expected: unknown; mode?: string };

test("expressions.json: expressions are those of the engine", () => {
  const { environments, cases } = JSON.parse(readFileSync(new URL("expressions.json", DATA), "utf8")) as {
    environments: Record<string, Record<string, unknown>>;
    cases: Row[];
  };
  // What JavaScript cannot tell: the integers around 2^53 of the rule book.
  const beyond = cases.filter(({ expr }) => expr.includes("event.data.big"));
  const rows = cases.filter((row) => !beyond.includes(row));
  assert.ok(rows.length > 100 && beyond.length <= 2, `${rows.length}, ${beyond.length}`);
  for (const { id, expr, env, expected, mode } of rows) {
    let environment = env;
    if (typeof env === "string") {
      const [base = "", without] = env.split(" without ");
      environment = Object.fromEntries(Object.entries(environments[base] ?? {}).filter(([root]) => root !== without));
    }
    let value: unknown;
    try {
      value = parse(expr)(environment.event ?? null, environment.async ?? null);
    } catch (error) {
      assert.ok(error instanceof ExpressionError, id);
      value = "error";
    }
    if (mode === "value" || value === "error") assert.deepEqual(value, expected, id);
    else assert.equal(isTrue(value), expected, id);
  }
});

test("expressions that are too much are refused, and a match and an if must both hold", () => {
  for (const text of ["(".repeat(10_000) + "true", "!".repeat(10_001) + "true", "!".repeat(40) + "true", "", 1]) {
    assert.throws(() => parse(text), ExpressionError);
  }
  const holds = condition("data.id", "async.data.n > event.data.n");
  const mine = { data: { id: 1, n: 5 } };

  assert.equal(holds(mine, { data: { id: 1, n: 6 } }), true);
  assert.equal(holds(mine, { data: { id: 1, n: 5 } }), false);
  assert.equal(holds(mine, { data: { id: true, n: 6 } }), false);
});
