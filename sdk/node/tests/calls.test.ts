/** The arguments of step calls. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NonRetriableError, type Step } from "../src/index.js";
import { type Body, invoke } from "./engine.js";

test("arguments are kept out of the timeline where that is asked for, are too large or no JSON", async () => {
  const body: Body = async (_ctx, step: Step<any>) =>
    step.run("a", (text: unknown) => String(text).length, "x".repeat(33_000));
  const small: Body = async (_ctx, step) => step.run("a", (n: number) => n, 1);

  assert.equal((await invoke(body))["input"], undefined);
  assert.equal((await invoke(async (_ctx, step) => step.run("a", (n: unknown) => typeof n, 1n)))["input"], undefined);
  assert.deepEqual((await invoke(small))["input"], [1]);
  assert.equal((await invoke(small, {}, { captureInput: false }))["input"], undefined);
});

test("options travel as max_attempts, also when the step fails", async () => {
  const fine = await invoke(async (_ctx, step) => step.options({ retries: 4 }).run("a", () => 1));
  const failed = await invoke(async (_ctx, step) =>
    step.options({ retries: 0 }).run("a", () => {
      throw new NonRetriableError("no");
    }),
  );

  assert.deepEqual([fine["max_attempts"], failed["max_attempts"], failed["op"]], [5, 1, "step_failed"]);
});

test("wrong arguments of steps are refused before anything runs, and not retried", async () => {
  const wrong: [(step: any) => unknown, RegExp][] = [
    [(step) => step.run("", () => 1), /blank/],
    [(step) => step.run("a"), /needs a function/],
    [(step) => step.sleep("a", "1 h"), /duration: "1 h" is not a duration/],
    [(step) => step.sleep("a", -1), /not a duration/],
    [(step) => step.sleepUntil("a", "tomorrow"), /when: "tomorrow" is not a time/],
    [(step) => step.sleepUntil("a", "2026-02-30"), /not a time/],
    [(step) => step.sleepUntil("a", new Date(Number.NaN)), /not a time/],
    [(step) => step.waitForEvent("a", "order.shipped"), /options: an object/],
    [(step) => step.waitForEvent("a", { event: "" }), /event: a non-empty string/],
    [(step) => step.waitForEvent("a", { event: "a", timeout: 0 }), /timeout: must be longer than zero/],
    [(step) => step.waitForEvent("a", { event: "a", timeuot: "1d" }), /^timeuot: unknown \(did you mean timeout\?\); allowed are/],
    [(step) => step.invoke("a", { workflow: 1 }), /workflow: a name/],
    [(step) => step.invoke("a", { workflow: "w", data: [1] }), /data: an object, not an array/],
    [(step) => step.sendEvent("a", []), /events: an event or a list of 1 to 100/],
    [(step) => step.sendEvent("a", [{ name: "a" }, {}]), /events\[1\]: an object with a name/],
    [(step) => step.options({ retries: 21 }), /retries: an integer from 0 to 20/],
    [(step) => step.waitForEvent("a", { event: "a b" }), /^event: 'a b' may hold only letters/],
    [(step) => step.waitForEvent("a", { event: "runr/cron" }), /^event: of the platform's events only .*"runr\/cron"/],
    [(step) => step.waitForEvent("a", { event: "x".repeat(201) }), /^event: must have 1–200 characters, it has 201/],
    [(step) => step.waitForEvent("a", { event: "a", match: "id ==" }), /^match: at character 4: .*, in "id =="$/],
    [(step) => step.waitForEvent("a", { event: "a", if: "async.x = 1" }), /^if: at character 9: .*, in "async.x = 1"$/],
    [(step) => step.invoke("a", { workflow: "app" }), /^workflow: "app" is reserved$/],
    [(step) => step.invoke("a", { workflow: "a b" }), /^workflow: 1 to 100 letters, .*"a b"/],
    [(step) => step.sendEvent("a", { name: "runr/x" }), /^events\[0\].name: names under runr\/ are reserved .*"runr\/x"/],
    [(step) => step.sendEvent("a", { name: "a", data: [1] }), /^events\[0\].data: an object, not \[1\]$/],
    [(step) => step.sendEvent("a", { name: "a", id: "é".repeat(128) }), /^events\[0\].id: a string of 1–255 bytes/],
    [(step) => step.sendEvent("a", { name: "a", ts: 1.5 }), /^events\[0\].ts: a Date, or unix time .*not 1.5|\(1.5\)/],
    [(step) => step.sendEvent("a", { name: "a", data: { n: 1n } }), /bigint/],
  ];
  for (const [call, message] of wrong) {
    const op = await invoke(async (_ctx, step) => call(step));
    assert.equal(op["op"], "run_failed", String(call));
    assert.equal(op["non_retriable"], true, String(call));
    assert.match(op["error"].message, message);
  }
});

test("what the engine takes is not refused", async () => {
  const wait = await invoke(async (_ctx, step) =>
    step.waitForEvent("a", { event: "runr/run.failed", if: "async.data.x == event.data.x", lookback: 0 }),
  );
  const sent = await invoke(async (_ctx, step: Step<any>) =>
    step.sendEvent("a", { name: "a/b:c", data: null, id: "i", ts: new Date(5) } as any),
  );

  assert.deepEqual([wait["event"], wait["lookback"]], ["runr/run.failed", 0]);
  assert.deepEqual(sent["events"], [{ name: "a/b:c", id: "i", ts: 5 }]);
});

test("what a run has passed stays as it was", async () => {
  const error = { name: "InvalidStep", message: "as the engine has refused it" };
  const op = await invoke(
    async (_ctx, step) => step.waitForEvent("a", { event: "no blanks" }).catch((caught) => (caught as Error).name),
    { a: { status: "failed", error } },
  );

  assert.equal(op["output"], "InvalidStep");
});

test("times are sent as UTC", async () => {
  const until = async (when: string | Date): Promise<unknown> =>
    (await invoke(async (_ctx, step) => step.sleepUntil("a", when)))["until"];

  assert.equal(await until("2026-03-01"), "2026-03-01T00:00:00.000Z");
  assert.equal(await until("2026-03-01T10:00"), "2026-03-01T10:00:00.000Z");
  assert.equal(await until("2026-03-01T10:00:00+03:00"), "2026-03-01T07:00:00.000Z");
});
