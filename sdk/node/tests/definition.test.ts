/** Definitions: every fault by its path, and what the engine is told. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { DefinitionError, Workflows } from "../src/index.js";
import { KEY, NOW, Lines, registry, seal } from "./engine.js";

function faults(name: unknown, options: unknown, fn: unknown = () => 1): readonly string[] {
  try {
    new Workflows().workflow(name as string, options as object, fn as () => number);
  } catch (error) {
    assert.ok(error instanceof DefinitionError && error instanceof TypeError);
    return error.faults;
  }
  return [];
}

test("introspection tells names and options in the words of the protocol", async () => {
  const workflows = registry();
  const options = {
    description: "Ships.",
    triggers: [
      { event: "order.created", if: "event.data.total > 0" },
      { cron: "0 9 * * *", timezone: "Europe/Istanbul", catchUp: "all" },
      { queue: "orders" },
    ],
    retries: 3,
    timeout: "7d",
    concurrency: [5, { limit: 1, key: "event.data.customer" }],
    idempotency: "event.data.order_id",
    cancelOn: [{ event: "order.cancelled", match: "data.order_id", timeout: 60, if: undefined }],
    checkpoint: { maxSteps: 50, maxTime: "5s" },
  } as const;
  workflows.workflow("process-order", options, () => 1);
  workflows.workflow("bare", { retries: undefined }, () => 1);
  const { body, headers } = await seal('{"type":"introspect","protocol":"v1","ts":1700000000}');
  const answer = JSON.parse((await workflows.handleRequest(body, headers)).body);

  const {
    triggers: [event, cron, queue],
    cancelOn: _,
    checkpoint: __,
    ...same
  } = options;
  assert.deepEqual(answer, {
    runr_workflow: "v1",
    sdk: { name: "@runr/workflows", language: "typescript", version: "0.1.0" },
    capabilities: ["dry", "max_ops"],
    workflows: [
      {
        name: "process-order",
        ...same,
        triggers: [event, { cron: cron.cron, timezone: cron.timezone, catch_up: "all" }, queue],
        cancel_on: [{ event: "order.cancelled", match: "data.order_id", timeout: 60 }],
        checkpoint: { max_steps: 50, max_time: "5s" },
      },
      { name: "bare" },
    ],
  });
  assert.deepEqual(workflows.definitions, answer.workflows);
});

test("every fault is named, with its path", () => {
  const found = faults(
    "app",
    {
      triggers: [{ event: "a", cron: "b" }, { event: "" }, { cron: "* * * * *", zone: "UTC" }, 1],
      retries: 21,
      timeout: "1 d",
      concurrency: { limit: 0, keys: "x" },
      idempotency: "x".repeat(1001),
      cancelOn: [{ match: "data.id", timeout: "0s" }],
      description: 1,
      checkpoint: { maxTime: "5m1s", steps: 1 },
      retires: 3,
    },
    (_a: unknown, _b: unknown, _c: unknown) => 1,
  );

  assert.deepEqual(
    found.map((fault) => fault.split(":")[0]),
    [
      "name",
      "triggers[0]",
      "triggers[1].event",
      "triggers[2].zone",
      "triggers[3]",
      "retries",
      "timeout",
      "concurrency.keys",
      "concurrency.limit",
      "idempotency",
      "cancelOn[0].event",
      "cancelOn[0].timeout",
      "description",
      "checkpoint.maxSteps",
      "checkpoint.steps",
      "checkpoint.maxTime",
      "retires",
      "function",
    ],
  );
});

test("names, functions and options are checked", () => {
  assert.deepEqual(faults("a", {}), []);
  assert.match(faults("a b", {})[0] ?? "", /^name: 1 to 100 letters/);
  assert.match(faults(1, {})[0] ?? "", /^name: /);
  assert.match(faults("a", null)[0] ?? "", /^options: an object like/);
  assert.match(faults("a", {}, "code")[0] ?? "", /^function: .*string/);
  assert.match(faults("a", {}, async function* () {})[0] ?? "", /generator/);
  assert.match(faults("a", { triggers: Array(11).fill({ event: "a" }) })[0] ?? "", /at most 10 entries/);
  assert.match(faults("a", { checkpoint: 5 })[0] ?? "", /^checkpoint: an object like/);
  assert.match(faults("a", { checkpoint: { maxSteps: 1001 } })[0] ?? "", /^checkpoint.maxSteps: an integer from 1/);
  assert.deepEqual(faults("a", { checkpoint: { maxSteps: 1000, maxTime: undefined } }), []);
  assert.match(faults("a", { triggers: "a" })[0] ?? "", /^triggers: a list, not "a"/);
});

test("expressions and names are judged as the engine judges them, each with its place", () => {
  const found = faults("w", {
    triggers: [{ event: "a b" }, { event: "a", if: "event.data.n = 1" }, { event: "runr/x" }, { queue: "a b" }],
    idempotency: "async.data.id",
    concurrency: [{ limit: 1, key: "data.id" }, 1],
    cancelOn: [{ event: "a", match: "id ==" }, { event: "runr/run.failed", if: "true false" }],
  });

  assert.deepEqual(found, [
    "triggers[0].event: 'a b' may hold only letters a–z and A–Z, digits and . _ : / -",
    "triggers[1].if: at character 14: = is no operator, expected ==, in \"event.data.n = 1\"",
    "triggers[2].event: of the platform's events only runr/run.cancelled, runr/run.completed, runr/run.failed, runr/run.timed_out are heard (\"runr/x\")",
    "triggers[3].queue: 'queue/a b' may hold only letters a–z and A–Z, digits and . _ : / -",
    "idempotency: may only use event: there is no incoming event here, in \"async.data.id\"",
    "concurrency[0].key: at character 1: expected event, async, true, false or null, found 'data', in \"data.id\"",
    "cancelOn[0].match: at character 4: expected '.', '[' or the end, found '==', in \"id ==\"",
    "cancelOn[1].if: at character 6: expected an operator or the end, found 'false', in \"true false\"",
  ]);
});

// What services/core/domain/cron.py says of them.
const REFUSED: [line: string, message: string][] = [
  ["@daily", "macros such as '@daily' are not taken: write the five fields"],
  ["  @hourly x", "macros such as '@hourly' are not taken: write the five fields"],
  ["* * * *", "a cron expression has five fields (minute hour day month weekday), this has 4"],
  ["* * * * * *", "a cron expression has five fields (minute hour day month weekday), this has 6"],
  ["60 * * * *", "minute: '60' is not 0-59"],
  ["* 24 * * *", "hour: '24' is not 0-23"],
  ["* * 32 * *", "day of month: '32' is not 1-31"],
  ["* * * 13 *", "month: '13' is not 1-12 or JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"],
  ["* * * FOO *", "month: 'FOO' is not 1-12 or JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"],
  ["* * * * MOO", "day of week: 'MOO' is not 0-7 or SUN|MON|TUE|WED|THU|FRI|SAT"],
  ["* * * * 8", "day of week: '8' is not 0-7 or SUN|MON|TUE|WED|THU|FRI|SAT"],
  ["5-1 * * * *", "minute: the range '5-1' runs backwards; ranges do not wrap around"],
  ["*/0 * * * *", "minute: the step of '*/0' must be at least 1"],
  ["1/0 * * * *", "minute: the step of '1/0' must be at least 1"],
  ["a b c d e", "day of month: 'c' is not 1-31"],
  ["* * 31 2 *", "never fires: no month of [2] has a day 31"],
  ["0 0 30 FEB *", "never fires: no month of [2] has a day 30"],
  ["0 0 31 2,4 *", "never fires: no month of [2, 4] has a day 31"],
  ["*-5 * * * *", "minute: '*-5' is none of *, N, N-M, with an optional /step"],
  ["? * * * *", "minute: '?' is none of *, N, N-M, with an optional /step"],
  ["0000000005 * * * *", "minute: '0000000005' is not 0-59"],
  ["0 0 l * *", "day of month: 'l' is not 1-31"],
  ["*/0000001 * * * *", "minute: the step of '*/0000001' must be at least 1"],
  ["mon * * * *", "minute: 'mon' is not 0-59"],
  ["1,,2 * * * *", "minute: '' is none of *, N, N-M, with an optional /step"],
  ["é * * * *", "minute: '\\xe9' is none of *, N, N-M, with an optional /step"],
];

test("cron lines are judged as the engine judges them, in its words", () => {
  const cron = (line: string): readonly string[] => faults("w", { triggers: [{ cron: line }] });
  for (const [line, message] of REFUSED) {
    assert.deepEqual(cron(line), [`triggers[0].cron: ${message}, in ${JSON.stringify(line)}`]);
  }
  const { cases } = vectors("cron.json") as { cases: { id: string; expr: string; expected: unknown }[] };
  for (const { id, expr, expected } of cases) {
    // Time zones are the engine's to judge.
    if (!id.includes("zone")) assert.equal(cron(expr).length > 0, expected === "error", id);
  }
  assert.ok(cases.length > 40);
  const [catchUp] = faults("w", { triggers: [{ cron: "* * * * *", catchUp: "never" }] });
  assert.equal(catchUp, 'triggers[0].catchUp: one of latest, all, none, not "never"');
});

/** An option, or a path to a fault, as this SDK spells it. */
function camel(name: string): string {
  return name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

function inCamel(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(inCamel);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [camel(key), inCamel(item)]));
}

test("definitions.json: what the engine takes is taken, and what it refuses is refused at the same places", () => {
  const { definitions } = vectors("definitions.json") as {
    definitions: { id: string; definition: Record<string, unknown>; expected: "ok" | string[] }[];
  };
  for (const { id, definition, expected } of definitions) {
    const { name, ...options } = definition;
    const found = faults(name, inCamel(options)).map((fault) => fault.split(":")[0]);
    assert.deepEqual(found.sort(), expected === "ok" ? [] : expected.map(camel).sort(), id);
  }
  assert.ok(definitions.length > 200);
});

test("an option that is not known, or not supported yet, is named with those that are", () => {
  const allowed = "allowed are description, triggers, retries, timeout, concurrency, idempotency, cancelOn, checkpoint";
  assert.deepEqual(faults("w", { priority: 3, rateLimit: undefined, on_failure: "x", retires: 3 }), [
    `priority: is not supported yet; ${allowed}`,
    `rateLimit: is not supported yet; ${allowed}`,
    `on_failure: is not supported yet; ${allowed}`,
    `retires: unknown (did you mean retries?); ${allowed}`,
  ]);
});

test("faults show the value", () => {
  assert.deepEqual(faults("a b", { retries: "three", checkpoint: 50, description: "x".repeat(1001), timeout: null }), [
    'name: 1 to 100 letters, digits and . _ - beginning with a letter or digit ("a b")',
    'retries: an integer from 0 to 20, not "three"',
    "checkpoint: an object like { maxSteps: 50, maxTime: '5s' }, not 50",
    "description: a text of at most 1,000 characters, not 1,001 characters",
  ]);
});

test("a zone that this runtime does not know is a doubt", () => {
  const logger = new Lines();
  const workflows = registry({ logger });
  const zones = ["Europe/Istanbul", "Europe/Istambul", undefined];
  workflows.workflow("w", { triggers: zones.map((timezone) => ({ cron: "0 9 * * *", timezone })) }, () => 1);

  assert.equal(logger.all.length, 1);
  assert.match(String(logger.all[0]), /workflow w: triggers\[1\]\.timezone: this runtime knows no "Europe\/Istambul"; /);
});

test("names of events are those of the engine", () => {
  const { names } = vectors("event_names.json") as { names: { id: string; name: unknown; expected: string }[] };
  for (const { id, name, expected } of names) {
    const found = faults("w", { triggers: [{ event: name }] });
    assert.equal(found.length === 0, expected === "ok", `${id}: ${String(found)}`);
  }
  assert.ok(names.length > 10);
});

function vectors(name: string): unknown {
  return JSON.parse(readFileSync(new URL(`../../../../tests/vectors/data/${name}`, import.meta.url), "utf8"));
}

test("a name is taken once", () => {
  const workflows = new Workflows();
  workflows.workflow("a", {}, () => 1);
  assert.throws(() => workflows.workflow("a", {}, () => 2), /already registered/);
});

test("requests that are none are refused with what is wrong", async () => {
  const logger = new Lines();
  const workflows = registry({ logger });
  workflows.workflow("w", {}, () => 1);
  const status = async (request: string, key = KEY): Promise<[number, string]> => {
    const { body, headers } = await seal(request, key);
    const answer = await workflows.handleRequest(body, headers);
    return [answer.status, JSON.parse(answer.body).error];
  };
  const run = '"run":{"id":"r"},"event":{}';

  assert.deepEqual(await status('{"type":"execute","workflow":"v","steps":{},' + run + "}"), [
    400,
    'the workflow "v" is not served here',
  ]);
  assert.deepEqual(await status('{"type":"delete"}'), [400, 'the request type "delete" is not known']);
  assert.match(
    (await status('{"type":"execute","workflow":"w","steps":[],' + run + "}"))[1],
    /steps is missing or not an object/,
  );
  assert.match(
    (await status('{"type":"execute","workflow":"w","steps":{"a":1},' + run + "}"))[1],
    /steps are not objects/,
  );
  assert.match((await status('{"type":"introspect","protocol":"v2"}'))[1], /protocol "v2"/);
  assert.deepEqual(await status("nonsense"), [400, "the body is not JSON"]);
  assert.deepEqual(await status('{"type":"introspect"}', "another key"), [401, "the signature does not match"]);
  assert.equal((await workflows.handleRequest(new Uint8Array([0xff]), {})).status, 400);
  assert.equal((await workflows.handleRequest(new Uint8Array(64 * 1024 * 1024 + 1), {})).status, 413);
  assert.equal((await registry({ signingKey: "" }).handleRequest((await seal("{}")).body, {})).status, 500);
  assert.equal(logger.all.length, 9);
  assert.ok(logger.all.every(([level]) => level === "warn"));
});

test("the fallback key is good too, and 300 seconds are", async () => {
  const { body, headers } = await seal('{"type":"introspect"}');
  const status = async (options: object): Promise<number> =>
    (await registry(options).handleRequest(body, headers)).status;

  assert.equal(await status({ signingKey: "new", signingKeyFallback: KEY }), 200);
  assert.equal(await status({ clock: () => NOW + 300 }), 200);
  assert.equal(await status({ clock: () => NOW + 300.001 }), 401);
});

test("a request that is signed is no other one that has the same bytes in UTF-8", async () => {
  const { body, headers } = await seal('{"type":"introspect","x":"\ufffd"}');
  const changed = new TextDecoder().decode(body).replace("\ufffd", "\\ud800");
  const status = async (sent: Uint8Array): Promise<number> => (await registry().handleRequest(sent, headers)).status;

  assert.deepEqual([await status(body), await status(new TextEncoder().encode(changed))], [200, 401]);
});

test("a body is UTF-8 to the letter", async () => {
  const { body, headers } = await seal('{"type":"introspect","x":"?"}');
  const status = async (sent: Uint8Array): Promise<number> => (await registry().handleRequest(sent, headers)).status;
  const broken = body.map((byte) => (byte === 0x3f ? 0xff : byte));

  assert.deepEqual([await status(body), await status(broken)], [200, 400]);
  assert.equal(await status(new Uint8Array([0xef, 0xbb, 0xbf, ...body])), 400);
});
