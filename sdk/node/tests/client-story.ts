/** The client against the real engine and the workflows of `orders.ts`: RUNR_API_URL and RUNR_TOKEN say where. */

import assert from "node:assert/strict";
import { setTimeout as sleep } from "node:timers/promises";
import { ApiError, Client, ResultTimeout, RunFailed, type RunHandle } from "../src/client.js";

const [project = "default"] = process.argv.slice(2);
const client = new Client({ project });

async function becomes(run: RunHandle<any>, status: string): Promise<void> {
  while ((await run.get()).status !== status) await sleep(50);
}

async function refused(call: Promise<unknown>, status: number, field: string | null = null): Promise<void> {
  await assert.rejects(call, (error) => {
    assert.ok(error instanceof ApiError);
    assert.deepEqual([error.status, error.field], [status, field], error.message);
    assert.ok(error.traceId);
    return true;
  });
}

// An event that starts a run, sent twice; the run waits for another.
const order = { name: "order.created", id: "created-1", data: { order_id: "o-1", total: 42 } };
const created = await client.send(order);
const again = await client.send(order);
assert.deepEqual([created.duplicate, again.duplicate, again.runs], [false, true, created.runs]);
const run = client.run<{ status: string; by: string | null }>(created.runs[0] ?? "");
await becomes(run, "waiting");
await assert.rejects(run.result({ timeout: "100ms" }), ResultTimeout);
const result = run.result({ timeout: "60s" });
const sent = await client.send([
  { name: "order.shipped", data: { order_id: "o-2", carrier: "pigeon" } },
  { name: "order.shipped", data: { order_id: "o-1", carrier: "dhl" } },
]);
assert.deepEqual(
  sent.map(({ resumed, duplicate }) => [resumed, duplicate]),
  [
    [0, false],
    [1, false],
  ],
);
assert.equal((await result).by, "dhl");
const event = await client.event(created.id);
assert.deepEqual([event.data, event.runs, event.event_id], [order.data, [run.id], "created-1"]);

// Starts: by key, delayed, tagged.
const first = await client.start<number>("double", { data: { n: 21 }, key: "k-1", tags: ["paged"] });
const second = await client.start<number>("double", { data: { n: 5 }, key: "k-1" });
assert.deepEqual([first.isNew, second.isNew, second.id], [true, false, first.id]);
assert.equal(await second.result(), 42);
const late = await client.start("double", { data: { n: 1 }, delay: "1h", tags: ["paged"], test: true });
const found = await late.get();
assert.deepEqual([found.test, found.source, found.steps], [true, "api", []]);

// Cancel, retry, replay.
await late.cancel();
await assert.rejects(late.result(), (error) => error instanceof RunFailed && error.status === "cancelled");
await refused(late.cancel(), 409);
await refused(first.retry(), 409);
const anew = await first.replay({ data: { n: 4 } });
assert.equal(await anew.result(), 8);
const replayed = await run.replay({ fromStep: "cool-off" });
const { steps, replay_of_run_id } = await replayed.get();
assert.deepEqual([steps.slice(0, 2).map(({ id }) => id), replay_of_run_id], [["reserve", "charge"], run.id]);
await replayed.cancel({ children: "keep" });
const nested = await client.start("nested");
await assert.rejects(nested.result(), (error) => error instanceof RunFailed && error.error?.name === "NestedStepError");
assert.equal((await nested.retry()).id, nested.id);

// Lists, and errors.
const ids: string[] = [];
for await (const { id, output } of client.runs({ tag: "paged", pageSize: 1 })) {
  ids.push(id);
  assert.equal(output, null);
}
assert.deepEqual(ids, [anew.id, late.id, first.id]);
const names: string[] = [];
for await (const { name } of client.events({ name: "order.", pageSize: 2 })) names.push(name);
assert.deepEqual(names.sort(), ["order.created", "order.shipped", "order.shipped"]);
await refused(client.send([{ name: "fine" }, { name: "runr/mine" }]), 422, "events[1].name");
await refused(client.run("01J00000000000000000000000").get(), 404);
await refused(client.start("unknown"), 404);
await refused(new Client({ token: "wrong" }).run(run.id).get(), 401);
process.stdout.write("told\n");
