// A test of a month's workflow with the TypeScript test kit, many times: its milliseconds as a line of JSON.

import { Workflows } from "../../../sdk/node/dist/index.js";
import { TestEngine, fails } from "../../../sdk/node/dist/testing.js";

const TIMES = 20;

const wf = new Workflows({ logger: { debug() {}, info() {}, warn() {}, error() {} } });
const order = wf.workflow("order", { retries: 5, timeout: "60d" }, async (ctx, step) => {
  const paid = await step.run("charge", () => "paid");
  await step.sleep("cool-off", "30d");
  const wait = (name, timeout) =>
    step.waitForEvent(name, { event: `order.${name}`, match: "data.order_id", timeout });
  const packed = await wait("packed", "1d");
  const shipped = await wait("shipped", "3d");
  return [paid, packed !== null, shipped !== null];
});

const taken = [];
for (let time = 0; time < TIMES; time++) {
  const began = performance.now();
  const engine = new TestEngine(wf);
  await engine.send("order.packed", { order_id: "o-1" }, { whenWaiting: "packed" });
  await engine.send("order.shipped", { order_id: "o-1" }, { whenWaiting: "shipped" });
  const faults = [fails("charge", undefined, { times: 5 })];
  const run = await engine.run(order, { order_id: "o-1" }, { faults });
  taken.push(performance.now() - began);
  if (JSON.stringify(run.output) !== '["paid",true,true]') throw new Error(`the run is ${run.status}`);
}
console.log(JSON.stringify(taken));
