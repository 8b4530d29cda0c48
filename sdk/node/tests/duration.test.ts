/** Durations, beyond the rows of `durations.json`. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { MAX_MS, parseDuration } from "../src/duration.js";

test("whole milliseconds are rounded half up, in decimal", () => {
  const rows: [string | number, number][] = [
    ["1.5ms", 2],
    ["2.5ms", 3],
    ["0.4999ms", 0],
    [0.0005, 1],
    [0.00049, 0],
    [4e-7, 0],
    [1.0005, 1001],
    [-0.0004, 0],
    ["1s0.5ms", 1001],
    ["PT1M0,0005S", 60_001],
    ["P1.5W", 907_200_000],
    [1e12, MAX_MS],
    ["1000000000000.0004", MAX_MS],
  ];
  for (const [value, expected] of rows) assert.equal(parseDuration(value), expected, String(value));
});

test("a fraction stands on the last part only, and too long or negative is refused", () => {
  const refused = [
    "1.5h30m",
    "PT1.5H30M",
    "1..5s",
    "1.s",
    ".5s",
    "1e3",
    -0.0005,
    -1,
    1e12 + 1,
    1e21,
    5e-324 - 1,
    1n,
    {},
  ];
  for (const value of refused) assert.throws(() => parseDuration(value), /is not a duration/, String(value));
  assert.throws(() => parseDuration(`${"9".repeat(101)}s`), /is not a duration/);
});
