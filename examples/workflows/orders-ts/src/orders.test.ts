/** Days of orders in milliseconds, with the kit for tests. */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { TestEngine, everyCrash, fails, replay } from "@runr/workflows/testing";
import { processOrder, wf } from "./orders.js";

const order = { order_id: "o-1", total: 42 };
const shipped = { order_id: "o-1", carrier: "dhl" };

test("an order that is shipped, by a bank that is busy at first", async () => {
  const engine = new TestEngine(wf);
  await engine.send("order.shipped", shipped, { after: "1d" });
  const run = await engine.run(processOrder, order, {
    faults: [fails("charge-card", new Error("busy"), { times: 4 })],
  });

  assert.deepEqual(run.output, { shipped: true, carrier: "dhl" });
  assert.equal(run.timeline.of("charge-card").length, 5);
  assert.equal(engine.now.getUTCDate(), 2);
});

test("an order that is not shipped is refunded after three days", async () => {
  const run = await new TestEngine(wf).run(processOrder, order);

  assert.deepEqual(run.output, { shipped: false, refunded: 42 });
  assert.deepEqual(run.timeline.ops.at(-3), ["step_completed", "release-stock", "completed"]);
});

test("an order is cancelled while it waits", async () => {
  const engine = new TestEngine(wf);
  const run = await engine.start(processOrder, order);
  await engine.advance("1h");
  await engine.send("order.cancelled", { order_id: "o-2" });
  assert.equal(run.status, "waiting");
  await engine.send("order.cancelled", { order_id: "o-1" });
  assert.equal(run.status, "cancelled");
});

test("the process may die after any step", async () => {
  await everyCrash(wf, async (engine) => {
    await engine.send("order.shipped", shipped, { whenWaiting: "shipped" });
    await engine.run(processOrder, order);
  });
});

const stored = process.env["ORDERS_HISTORY"];

test("the code still goes the way of a stored run", { skip: stored === undefined }, async () => {
  // As `GET /api/runs/{id}` has answered it.
  const { next } = await replay(wf, JSON.parse(readFileSync(stored ?? "", "utf8")));

  assert.equal(next, null);
});
