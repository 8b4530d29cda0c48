/** The protocol's test data, as the Python SDK is held to it. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { parseDuration } from "../src/duration.js";
import { StepArgumentError, StepError } from "../src/errors.js";
import { openEnvelope } from "../src/protocol.js";
import { RequestRefused } from "../src/refusal.js";
import { sign, verify } from "../src/signature.js";
import { StepIds } from "../src/step-ids.js";
import { type Body, type Memo, invoke, runToEnd } from "./engine.js";

const DATA = new URL("../../../../tests/vectors/data/", import.meta.url);

type Row = Record<string, any>;

function read(name: string): Record<string, Row[]> {
  return JSON.parse(readFileSync(new URL(name, DATA), "utf8")) as Record<string, Row[]>;
}

/** The text of `"a"*200`, written as Python would. */
function made(words: string): string {
  const match = /^("(?:[^"\\]|\\.)*")(?:\*([0-9]+))?$/.exec(words);
  assert.ok(match?.[1] !== undefined, `make: ${words}`);
  const text = JSON.parse(match[1].replaceAll("\\x", "\\u00")) as string;
  return text.repeat(Number(match[2] ?? 1));
}

function outcome(call: () => unknown): unknown {
  try {
    return call();
  } catch (error) {
    assert.ok(error instanceof StepArgumentError && error instanceof TypeError, String(error));
    return "error";
  }
}

async function status(call: () => Promise<unknown>): Promise<string> {
  try {
    await call();
  } catch (error) {
    assert.ok(error instanceof RequestRefused, String(error));
    return String(error.status);
  }
  return "accept";
}

test("durations.json", () => {
  const rows = read("durations.json")["cases"] ?? [];
  assert.ok(rows.length > 50);
  for (const row of rows) {
    const input: unknown = "make" in row ? made(row["make"]) : row["input"];
    assert.deepEqual(
      outcome(() => parseDuration(input)),
      row["expected_ms"],
      row["id"],
    );
  }
});

test("signatures.json: what is signed", async () => {
  for (const row of read("signatures.json")["vectors"] ?? []) {
    const request = row["request_make"] ? made(row["request_make"]) : row["request"];
    assert.equal(await sign(row["key"], row["t"], request), row["v1"], row["id"]);
  }
});

async function checkVerify(row: Row, keys: string[]): Promise<void> {
  const signed = {
    header: row["header"] ?? undefined,
    envelope: undefined,
    keys,
    request: row["request"],
    now: row["now"],
  };
  assert.equal(await status(() => verify(signed)), String(row["expected"]), row["id"]);
}

test("signatures.json: what is accepted", async () => {
  const { verify: rows = [], envelope = [] } = read("signatures.json");
  assert.ok(rows.length > 20 && envelope.length > 5);
  for (const row of rows) await checkVerify(row, row["keys"]);
  for (const row of envelope) {
    const body = new TextEncoder().encode(JSON.stringify(row["body"]));
    const opened = status(() => openEnvelope(body, row["header"] ?? undefined, row["keys"], row["now"]));
    assert.equal(await opened, String(row["expected"]), row["id"]);
  }
});

test("step_ids.json: ids in call order", () => {
  for (const row of read("step_ids.json")["sequences"] ?? []) {
    const runs = Array.from({ length: row["concurrent_runs"] ?? 1 }, () => new StepIds());
    const given = runs.map((): string[] => []);
    for (const call of row["calls"]) runs.forEach((ids, index) => given[index]?.push(ids.assign(call)));
    for (const ids of given) assert.deepEqual(ids, row["expected_ids"], row["id"]);
  }
});

const CALLS: Record<string, (step: any, id: string) => Promise<unknown>> = {
  run: (step, id) => step.run(id, () => 0),
  sleep: (step, id) => step.sleep(id, "1s"),
  wait_for_event: (step, id) => step.waitForEvent(id, { event: "a", timeout: "1s" }),
  invoke: (step, id) => step.invoke(id, { workflow: "w" }),
  send_event: (step, id) => step.sendEvent(id, { name: "a" }),
};

test("step_ids.json: ids through signed requests, one invocation a step", async () => {
  for (const row of read("step_ids.json")["sequences"] ?? []) {
    const calls: string[] = row["calls"];
    const body: Body = async (_ctx, step) => {
      for (const [index, id] of calls.entries()) await CALLS[row["kinds"]?.[index] ?? "run"]?.(step, id);
    };
    const ops = await runToEnd(body, calls.length + 1);
    assert.deepEqual(
      ops.slice(0, -1).map((op) => op["id"]),
      row["expected_ids"],
      row["id"],
    );
    assert.equal(ops.at(-1)?.["op"], "run_completed");
  }
});

test("step_ids.json: what is refused", () => {
  const { lengths = [], types = [] } = read("step_ids.json");
  assert.ok(lengths.length > 0 && types.length > 0);
  for (const row of lengths) {
    const id = made(row["make"]);
    const found = outcome(() => new StepIds().assign(id));
    assert.equal(found === "error" ? "error" : "ok", row["expected"].split(",")[0], row["id"]);
    const repeat = /the ([0-9]+)st repeat is ([0-9]+) bytes/.exec(row["expected"]);
    if (repeat === null) continue;
    const ids = new StepIds();
    const all = Array.from({ length: Number(repeat[1]) }, () => ids.assign(id));
    assert.equal(Buffer.byteLength(all.at(-1) ?? ""), Number(repeat[2]));
  }
  for (const row of types)
    assert.equal(
      outcome(() => new StepIds().assign(row["call"])),
      "error",
      row["id"],
    );
});

interface Seen {
  executed: string[];
  returned: Map<string, unknown>;
  thrown: Set<string>;
  op: Row;
}

async function seen(row: Row): Promise<Seen> {
  const found: Seen = { executed: [], returned: new Map(), thrown: new Set(), op: {} };
  found.op = await invoke(async (_ctx, step) => {
    for (const id of row["calls"] as string[]) {
      try {
        found.returned.set(id, await step.run(id, () => found.executed.push(id)));
      } catch (error) {
        if (!(error instanceof StepError)) throw error;
        found.thrown.add(id);
      }
    }
  }, row["steps"] as Memo);
  return found;
}

function checkClause(clause: string, found: Seen, row: Row): void {
  const first: string = row["calls"][0];
  const rules: [RegExp, (match: RegExpExecArray) => void][] = [
    [/^runs (\S+)$|^(\S+) executes$/, (match) => assert.deepEqual(found.executed, [match[1] ?? match[2]])],
    [/^(\S+) returns null/, ([, id = ""]) => assert.equal(found.returned.get(id), null)],
    [
      /^(\S+) returns the (?:object|output|value)$/,
      ([, id = ""]) => assert.deepEqual(found.returned.get(id), row["steps"][id].output),
    ],
    [/^(\S+) returns (.+)$/, ([, id = "", text = ""]) => assert.deepEqual(found.returned.get(id), JSON.parse(text))],
    [/^(\S+) (?:raises|throws)\b/, ([, id = ""]) => assert.ok(found.thrown.has(id))],
    [/StepError/, () => assert.ok(found.thrown.has(first))],
    [/^(\S+) is left alone$/, ([, id = ""]) => assert.ok(!found.executed.includes(id) && !found.returned.has(id))],
    [/^nothing is raised$/, () => assert.ok(found.thrown.size === 0 && found.op["op"] !== "run_failed")],
    [
      /^treated as not memoized or a clean failure$/,
      () => assert.ok(found.executed[0] === first || found.op["op"] === "run_failed"),
    ],
    [/^never returned as completed$/, () => assert.ok(!found.returned.has(first) || found.executed.includes(first))],
  ];
  for (const [pattern, check] of rules) {
    const match = pattern.exec(clause);
    if (match !== null) return check(match);
  }
  assert.fail(`no rule for: ${clause}`);
}

test("step_ids.json: what is done with stored results", async () => {
  for (const row of read("step_ids.json")["memo"] ?? []) {
    const found = await seen(row);
    for (const clause of row["expected"].split(";")) checkClause(clause.replace(/\(.*?\)/g, "").trim(), found, row);
  }
});

test("cases.jsonl: the rows about an SDK", async () => {
  const lines = readFileSync(new URL("cases.jsonl", DATA), "utf8").split("\n");
  const rows = lines.filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as Row);
  let checked = 0;
  for (const { area, input = {}, expected, ...row } of rows) {
    if (area === "sdk" && "values" in input) {
      assert.deepEqual(
        input.values.map((value: unknown) => outcome(() => parseDuration(value))),
        expected,
      );
    } else if (area === "sdk" && "calls" in input) {
      let results: unknown[] = [];
      const ops = await runToEnd(async (_ctx, step) => {
        results = [];
        for (const [index, id] of (input.calls as string[]).entries())
          results.push(await step.run(id, () => index + 1));
      });
      assert.deepEqual([ops.slice(0, -1).map((op) => op["id"]), results], [expected.ids, expected.results]);
    } else if (area === "signature" && "key_held" in input && "header" in input) {
      await checkVerify({ ...input, expected, id: row["id"] }, [input.key_held]);
    } else continue;
    checked += 1;
  }
  assert.ok(checked >= 3, `only ${checked} rows were understood`);
});
