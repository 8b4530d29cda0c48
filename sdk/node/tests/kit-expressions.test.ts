/** Expressions as the SDK checks them and the kit for tests evaluates them, against the rule book of the protocol's test data. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { condition, parse, parseMatch, parseOfEvent } from "../src/rules/expression.js";
import { isTrue } from "../src/rules/json-values.js";
import { ExpressionError } from "../src/rules/tokens.js";

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

// What services/core/domain/expression_syntax.py says of them.
const REFUSED: [text: string, message: string][] = [
  ["event.data.a = 1", "at character 14: = is no operator, expected =="],
  ["event.data.a & true", "at character 14: & is no operator, expected &&"],
  ["event.data.a | true", "at character 14: | is no operator, expected ||"],
  ["event.data.a === 1", "at character 14: === is no operator, comparisons are strict: use =="],
  ["event.data.a !== 1", "at character 14: expected an operator or the end, found '!'"],
  ["event.data.a + 1", "at character 14: unexpected +: there is no arithmetic, and other keys stand in [\"…\"]"],
  ["event.data.a-b", "at character 13: unexpected -: there is no arithmetic, and other keys stand in [\"…\"]"],
  ["'open", "at character 1: the string that begins here has no closing '"],
  ["\"open", "at character 1: the string that begins here has no closing \""],
  ["07", "at character 1: expected a number as JSON writes it"],
  ["1.", "at character 2: expected an operator or the end, found '.'"],
  ["event.data.é", "at character 12: unexpected '\\xe9'"],
  ["event.data.a ==", "at character 16: expected a value: a path, a string, a number, true, false or null, found the end"],
  ["", "at character 1: expected a value: a path, a string, a number, true, false or null, found the end"],
  ["event.", "at character 7: expected a name after '.' (other keys stand in [\"…\"]), found the end"],
  ["event.1", "at character 7: expected a name after '.' (other keys stand in [\"…\"]), found '1'"],
  ["event[", "at character 7: expected a quoted key or an index from 0, found the end"],
  ["event[a]", "at character 7: expected a quoted key or an index from 0, found 'a'"],
  ["event[-1]", "at character 7: expected a quoted key or an index from 0, found '-1'"],
  ["event['a'", "at character 10: expected ']', found the end"],
  ["data.x == 1", "at character 1: expected event, async, true, false or null, found 'data'"],
  ["1 < 2 < 3", "at character 7: expected '&&', '||' or the end, for comparisons do not chain, found '<'"],
  ["(true", "at character 6: expected an operator or ')', found the end"],
  ["true)", "at character 5: expected an operator or the end, found ')'"],
  ["true false", "at character 6: expected an operator or the end, found 'false'"],
  ["'\\q'", "at character 2: unknown escape, allowed are \\\\ \\' \\\" \\n \\t \\r \\uXXXX"],
  ["'ab\\x41'", "at character 4: unknown escape, allowed are \\\\ \\' \\\" \\n \\t \\r \\uXXXX"],
  ["'a\tb'", "at character 1: a string holds no raw control character: write it escaped"],
  ["1e999", "at character 1: the number 1e999 is out of range"],
  ["'😀' = 1", "at character 5: = is no operator, expected =="],
  ["'😀\\q'", "at character 3: unknown escape, allowed are \\\\ \\' \\\" \\n \\t \\r \\uXXXX"],
  ["event.data.a ? 1", "at character 14: unexpected '?'"],
  ["event.data.a == 😀", "at character 17: unexpected '\\U0001f600'"],
  ["\\", "at character 1: unexpected '\\\\'"],
  ["it's", "at character 3: the string that begins here has no closing '"],
  ["", "at character 1: unexpected '\\x7f'"],
];
const REFUSED_MATCHES: [text: string, message: string][] = [
  ["order_id", "at character 1: a match path begins with one of data, id, name, ts, as in data.order_id"],
  ["1", "at character 1: expected a path like data.order_id, found '1'"],
  ["data.", "at character 6: expected a name after '.' (other keys stand in [\"…\"]), found the end"],
  ["data.a ==", "at character 8: expected '.', '[' or the end, found '=='"],
  ["data[", "at character 6: expected a quoted key or an index from 0, found the end"],
  ["event.data.x", "at character 1: a match path begins with one of data, id, name, ts, as in data.order_id"],
  ["", "at character 1: expected a path like data.order_id, found the end"],
];

test("a refusal has the words of the engine", () => {
  for (const [text, message] of REFUSED) assert.throws(() => parse(text), { name: "ExpressionError", message }, text);
  for (const [text, message] of REFUSED_MATCHES) assert.throws(() => parseMatch(text), { message }, text);
  const deep = { message: "at character 33: nested deeper than 32 levels" };
  for (const mark of ["!", "("]) assert.throws(() => parse(mark.repeat(33) + "true"), deep);
  const long = { message: "at character 1001: an expression has at most 1000 characters, this has 1001" };
  assert.throws(() => parse("x".repeat(1001)), long);
  assert.throws(() => parseOfEvent("event.id == 'a' || async.id"), /^ExpressionError: may only use event: there is no/);
  assert.equal(parseOfEvent("event.id")({ id: "async" }, null), "async");
});
