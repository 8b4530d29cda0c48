/** Encryption as middleware, against the real engine: RUNR_API_URL, RUNR_TOKEN, RUNR_WORKFLOW_SIGNING_KEY say where. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { Client } from "../src/client.js";
import { Workflows } from "../src/index.js";
import { TestEngine, replay } from "../src/testing.js";
import { encryption } from "./encryption.js";
import { Lines } from "./engine.js";
import { serveHere } from "./serve-here.js";

const [project = "default"] = process.argv.slice(2);
const middleware = [await encryption(new Uint8Array(32).fill(3))];
const wf = new Workflows({ middleware, logger: new Lines() });

const mask = wf.workflow("mask", {}, async (ctx, step) =>
  step.run("mask", (card: string) => `…${card.slice(-4)}`, ctx.event.data["card"]),
);
const pay = wf.workflow("pay", {}, async (ctx, step) => {
  const { order_id, card } = ctx.event.data;
  const paid = await step.run("charge", (number: string) => ({ order_id, number }), card);
  const approved = await step.waitForEvent("approved", { event: "approved", match: "data.order_id", timeout: "1m" });
  const masked = await step.invoke("mask", { workflow: mask, data: { card } });
  await step.sendEvent("tell", { name: "paid", data: { order_id, masked } });
  return { paid, by: approved?.data["by"] ?? null, masked };
});

const data = { order_id: "o-1", card: "4111-1111" };
const wanted = { paid: { order_id: "o-1", number: "4111-1111" }, by: "secret-agent", masked: "…1111" };
const READABLE = /4111|1111|secret-agent/;

await serveHere(wf, project, async () => {
  const client = new Client({ project, middleware });
  const stranger = new Client({ project });
  const run = await client.start(pay, { data, key: "o-1" });
  while ((await run.get()).status !== "waiting") await sleep(20);
  const { resumed } = await client.send({ name: "approved", data: { order_id: "o-1", by: "secret-agent" } });
  assert.equal(resumed, 1);
  assert.deepEqual(await run.result(), wanted);

  const found = await run.get();
  assert.deepEqual([found.output, found.event?.data], [wanted, data]);
  assert.deepEqual(found.steps[0]?.output, wanted.paid);
  const stored = await stranger.run(run.id).get();
  assert.doesNotMatch(JSON.stringify(stored), READABLE);
  assert.match(String(stored.output), /^aes:/);
  assert.match(String(stored.steps[0]?.input), /^aes:/);
  for (const { id } of stored.children) assert.doesNotMatch(JSON.stringify(await stranger.run(id).get()), READABLE);
  for await (const { id } of stranger.events({ pageSize: 10 })) {
    assert.doesNotMatch(JSON.stringify(await stranger.event(id)), READABLE);
  }

  // The kit comes to the same, and the code goes the way of what is stored.
  const engine = new TestEngine(wf);
  await engine.send("approved", { order_id: "o-1", by: "secret-agent" }, { whenWaiting: "approved" });
  assert.deepEqual((await engine.run(pay, data)).output, wanted);
  assert.equal((await replay(wf, stored)).next, null);
});
process.stdout.write("sealed\n");
