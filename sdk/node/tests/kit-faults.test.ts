/** The kit for tests: faults, stubs and events that hit nothing. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NonRetriableError } from "../src/index.js";
import { TestEngine, UnusedError, everyCrash, fails, returns } from "../src/testing.js";
import { registry } from "./engine.js";

function shipping() {
  const wf = registry();
  const label = wf.workflow("label", {}, async (_ctx, step) => step.run("print", (size: number) => size, 1));
  const order = wf.workflow("order", {}, async (_ctx, step) => {
    const reserved = await step.run("reserve", () => 1);
    await step.sleep("nap", "1h");
    await step.waitForEvent("paid", { event: "paid", timeout: "1d" });
    return [reserved, await step.invoke("ship", { workflow: label }).catch((error: unknown) => String(error))];
  });
  return { wf, order };
}

test("what hits nothing is refused, with the ids that there are", async () => {
  const { wf, order } = shipping();
  const none = /^UnusedError: a fault of step "resreve" hit nothing: no function of such a step was executed; there are "reserve" in order, "print" in label$/;
  const invoke = /^UnusedError: a fault of step "ship" hit nothing: it is an invoke, .* step\.run; .* \{ stubs: \{ "label": … \} \}\)$/;
  for (const [fault, message] of [
    [fails("resreve"), none],
    [returns("resreve", 1), none],
    [fails("ship"), invoke],
    [fails("nap"), /"nap" hit nothing: it is a sleep, and faults stand for functions of step\.run$/],
    [returns("paid", 1), /"paid" hit nothing: it is a wait_for_event, and faults stand/],
  ] as const) {
    await assert.rejects(new TestEngine(wf).run(order, {}, { faults: [fault] }), message);
    await assert.rejects(new TestEngine(wf, { faults: [fault] }).run(order), message);
    await assert.rejects(
      everyCrash(wf, (engine) => engine.start(order), { faults: [fault] }),
      UnusedError,
    );
  }
  const never = [fails("reserve"), fails("reserve", "b"), fails("reserve", "c", { times: 0 })];
  assert.equal((await new TestEngine(wf).run(order, {}, { faults: never })).status, "completed");
  const both = [returns("reserve", 2), fails("reserve")];
  const late = /"reserve" hit nothing: there were 1 attempts, and its turn did not come$/;
  await assert.rejects(new TestEngine(wf).run(order, {}, { faults: both }), late);
});

test("a run that failed before a fault could hit is told of", async () => {
  const { wf, order } = shipping();
  const faults = [fails("reserve", new NonRetriableError("no room")), fails("print")];

  await assert.rejects(
    new TestEngine(wf).run(order, {}, { faults }),
    /"print" hit nothing: .*; there are "reserve" in order; order is failed: NonRetriableError: no room$/,
  );
});

test("an event that no run waited for is refused, with the waits that there were", async () => {
  const { wf, order } = shipping();
  const engine = new TestEngine(wf);
  await engine.send("paid", {}, { whenWaiting: "payd" });

  await assert.rejects(
    engine.run(order),
    /^UnusedError: the event .* a run waits in "payd" was not sent: no run waited in it; they waited in "paid" in order$/,
  );
  assert.throws(() => engine.check(), UnusedError);
});

test("faults of a run reach what it invokes, and stand before those of all runs", async () => {
  const { wf, order } = shipping();
  const faults = [fails("print", new NonRetriableError("jam"))];
  const engine = new TestEngine(wf, { faults: [returns("print", 3)] });
  const jammed = await engine.run(order, {}, { faults });
  const printed = await engine.run(order);

  assert.deepEqual(jammed.output, [1, 'step "ship" failed: InvokeError: the invoked run failed: jam']);
  assert.deepEqual(printed.output, [1, 3]);
});

test("what may still hit is not refused, and what a later run hits was not used by one before", async () => {
  const { wf, order } = shipping();
  const engine = new TestEngine(wf, { faults: [returns("print", 2)] });
  const fault = fails("reserve");
  const one = await engine.start(order, {}, { faults: [fault], key: "one" });
  const other = await engine.start(order, {}, { faults: [fails("resreve")] });
  await engine.send("paid", {}, { whenWaiting: "paid" });
  await engine.advance("30m");
  assert.deepEqual([one.status, other.status, engine.unsent], ["sleeping", "sleeping", ["paid"]]);
  await assert.rejects(engine.finish(other), /"resreve" hit nothing/);
  await engine.finish(one);
  engine.check();
  await assert.rejects(engine.start(order, {}, { faults: [fault], key: "one" }), /run of this key has begun before/);
  const again = await engine.run(order, {}, { faults: [fault] });
  assert.equal(again.timeline.of("reserve").length, 2);
});
