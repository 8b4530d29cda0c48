/** User code as tsc --strict sees it: compiled with the tests, never run. Each `@ts-expect-error` is a fault that it finds. */

import { Client, type RunDetail } from "../src/client.js";
import { TestEngine, type TestRun } from "../src/testing.js";
import { type Event, type Jsonified, Workflows } from "../src/index.js";

type Order = { order_id: string; total: number; note?: string };
type Events = { "order.created": Order; "order.shipped": { order_id: string; carrier: string } };
type Same<A, B> = (<T>() => T extends A ? 1 : 2) extends <T>() => T extends B ? 1 : 2 ? true : false;

/** Compiles only if both types are the same. */
function same<A, B>(_isSame: Same<A, B>): void {}

const wf = new Workflows<Events>();

const ship = wf.workflow("ship", { triggers: [{ event: "order.created" }], retries: 2 }, async (ctx, step) => {
  same<typeof ctx.event, Event<"order.created", Order>>(true);
  const label = await step.run(
    "label",
    async (order: Order) => ({ at: new Date(), for: order.order_id }),
    ctx.event.data,
  );
  same<typeof label, { at: string; for: string }>(true);
  const nothing = await step.run("nothing", () => undefined);
  same<typeof nothing, null>(true);
  const list = await step
    .options({ retries: 0 })
    .run("list", () => [{ a: 1 as const, b: undefined as string | undefined }]);
  same<typeof list, { a: 1; b: string | undefined }[]>(true);
  const kept = await step.run("order", () => ctx.event.data);
  same<typeof kept, Order>(true);
  const [one, two] = await Promise.all([step.run("one", () => 1), step.run("two", () => "2")]);
  same<[typeof one, typeof two], [number, string]>(true);
  const slept = await step.sleep("nap", "10m");
  same<typeof slept, null>(true);
  const shipped = await step.waitForEvent("shipped", { event: "order.shipped", timeout: "3d" });
  same<typeof shipped, Event<"order.shipped", { order_id: string; carrier: string }> | null>(true);
  const sent = await step.sendEvent("tell", { name: "order.shipped", data: { order_id: "o", carrier: "c" } });
  same<typeof sent, { ids: string[] }>(true);

  const map = await step.run("map", () => new Map([["a", 1]]));
  // @ts-expect-error: what JSON cannot hold has no members
  map.size;
  type Told = Parameters<typeof step.sendEvent>[1];
  const oneOrMore: Told | readonly Told[] = [{ name: "order.shipped", data: { order_id: "o", carrier: "c" } }];
  await step.sendEvent("tell", oneOrMore as Told | readonly Told[]);
  // @ts-expect-error: an argument of another type
  await step.run("label", (order: Order) => order.total, { total: "1" });
  // @ts-expect-error: an argument too few
  await step.run("label", (order: Order) => order.total);
  // @ts-expect-error: an event that is not declared
  await step.waitForEvent("shipped", { event: "order.shiped" });
  // @ts-expect-error: an option that does not exist
  await step.waitForEvent("shipped", { event: "order.shipped", timeuot: "3d" });
  // @ts-expect-error: data of another event
  await step.sendEvent("tell", { name: "order.created", data: { carrier: "c" } });
  // @ts-expect-error: no such member
  ctx.event.data.carrier;
  return { shipped: shipped !== null, when: new Date() };
});

wf.workflow(
  "parent",
  { triggers: [{ event: "order.created" }, { cron: "0 9 * * *" }, { queue: "orders" }] },
  async (ctx, step) => {
    if (ctx.event.name === "order.created") same<typeof ctx.event.data, Order>(true);
    else if (ctx.event.name === "runr/cron") same<typeof ctx.event.data.scheduled_at, string>(true);
    else same<typeof ctx.event.name, "queue/orders">(true);
    const made = await step.invoke("ship", { workflow: ship, data: { order_id: "o", total: 1 }, timeout: "1h" });
    same<typeof made, { shipped: boolean; when: string }>(true);
    same<unknown, Awaited<ReturnType<typeof other>>>(true);
    // @ts-expect-error: data that the workflow does not take
    await step.invoke("ship", { workflow: ship, data: { order: 1 } });
    function other() {
      return step.invoke("other", { workflow: "other", data: { any: 1 } });
    }
  },
);

type Any = string | number | boolean | null | Any[] | { [name: string]: Any };
interface Tree {
  kids: Tree[];
  at: Date;
}
same<Jsonified<Any>, Any>(true);
same<Jsonified<Tree>["kids"][number]["kids"][number]["at"], string>(true);
same<Jsonified<Record<string, unknown>>, Record<string, unknown>>(true);
same<Jsonified<readonly [Date, "x" | Date]>, [string, string]>(true);
same<Jsonified<Map<string, number> | Set<1> | Uint8Array | Promise<number> | RegExp>, never>(true);
same<Jsonified<{ name: string; message: string; stack?: string }>, { name: string; message: string; stack?: string }>(true);
same<Jsonified<{ bytes: Uint8Array; of: (number | Map<1, 2>)[] }>, { bytes: never; of: number[] }>(true);
same<Jsonified<{ a?: Date; m(): void; n: bigint }>, { a?: string; m: never; n: never }>(true);

// @ts-expect-error: a trigger that is not declared
wf.workflow("typo", { triggers: [{ event: "order.creatd" }] }, () => 1);
// @ts-expect-error: an option that does not exist
wf.workflow("option", { retires: 1 }, () => 1);
// @ts-expect-error: retries is a number
wf.workflow("number", { retries: "1" }, () => 1);

const loose = new Workflows();
loose.workflow("any", { triggers: [{ event: "whatever" }] }, async (ctx, step) => {
  const id: string = ctx.event.data["id"];
  const found = await step.waitForEvent("x", { event: "anything" });
  await step.sendEvent("y", [{ name: "anything", data: { id, found } }]);
});
loose.workflow("none", {}, (ctx) => ctx.event.data["anything"]);

const client = new Client<Events>();
export async function client_(): Promise<void> {
  const started = await client.start(ship, { data: { order_id: "o", total: 1 }, key: "o", delay: "1h" });
  const result = await started.result({ timeout: "5m" });
  same<typeof result, { shipped: boolean; when: string }>(true);
  const named = await (await client.start<number>("ship", { data: { any: 1 } })).result();
  same<typeof named, number>(true);
  const found = await client.run<{ n: number }>("01J").get();
  same<typeof found, RunDetail<{ n: number }>>(true);
  const sent = await client.send([{ name: "order.shipped", data: { order_id: "o", carrier: "c" }, id: "s-1" }]);
  same<(typeof sent)[number]["duplicate"], boolean>(true);
  const { runs } = await client.send({ name: "order.created", data: { order_id: "o", total: 1 } });
  same<typeof runs, readonly string[]>(true);

  // @ts-expect-error: data that the workflow does not take
  await client.start(ship, { data: { order: 1 } });
  // @ts-expect-error: data of another event
  await client.send({ name: "order.created", data: { carrier: "c" } });
  // @ts-expect-error: a status that does not exist
  client.runs({ status: "done" });
}

export async function kit(): Promise<void> {
  const engine = new TestEngine(wf);
  const run = await engine.run(ship, { order_id: "o", total: 1 });
  same<typeof run, TestRun<{ shipped: boolean; when: string }>>(true);
  const { resumed } = await engine.send("order.shipped", { order_id: "o", carrier: "c" });
  same<typeof resumed, number>(true);
  const later = await engine.send("order.shipped", { order_id: "o", carrier: "c" }, { after: "1d" });
  same<null extends typeof later ? true : false, true>(true);
  await new TestEngine(loose).send("anything", { any: 1 });

  // @ts-expect-error: data that the workflow does not take
  await engine.run(ship, { order: 1 });
  // @ts-expect-error: data of another event
  await engine.send("order.shipped", { total: 1 });
  // @ts-expect-error: an event that is not declared
  await engine.send("order.shiped", {});
}
