/**
 * A function for the real engine: the order of the protocol page, and a workflow that uses every other step. Each line on
 * stdout is one execution of a step's function: the run, the step.
 */

import { type Context, NonRetriableError, StepError, Workflows } from "../src/index.js";

type Order = { order_id: string; total: number };
type Events = {
  "order.created": Order;
  "order.shipped": { order_id: string; carrier: string };
  "order.done": { of: string };
};

const wf = new Workflows<Events>();

function note({ runId }: Context<unknown>, step: string): void {
  process.stdout.write(`${runId} ${step}\n`);
}

wf.workflow(
  "process-order",
  { triggers: [{ event: "order.created" }], idempotency: "event.data.order_id" },
  async (ctx, step) => {
    const reserved = await step.run(
      "reserve",
      (order: Order) => {
        note(ctx, "reserve");
        return { reservation: `r-${order.order_id}` };
      },
      ctx.event.data,
    );
    const charged = await step
      .options({ retries: 1 })
      .run("charge", () => {
        note(ctx, "charge");
        if (ctx.attempt === 0) throw new Error("the bank is busy");
        if (ctx.event.data.total > 100) throw new NonRetriableError("card declined");
        return true;
      })
      .catch((error: unknown) => {
        if (error instanceof StepError) return error.message;
        throw error;
      });
    await step.sleep("cool-off", "300ms");
    if (charged !== true) return { status: "declined", why: charged };
    const shipped = await step.waitForEvent("shipped", {
      event: "order.shipped",
      match: "data.order_id",
      timeout: "3d",
    });
    return { status: "done", by: shipped?.data.carrier ?? null, ...reserved };
  },
);

const double = wf.workflow("double", {}, async (ctx, step) =>
  step.run("double", () => {
    note(ctx, "double");
    return Number(ctx.event.data["n"]) * 2;
  }),
);

wf.workflow("gather", {}, async (ctx, step) => {
  const letters = await Promise.all(
    ["a", "b", "c"].map((letter) =>
      step.run("letter", async () => {
        note(ctx, letter);
        return letter;
      }),
    ),
  );
  const doubled = await step.invoke("child", { workflow: double, data: { n: 21 } });
  await step.sleepUntil("past", new Date(0));
  const { ids } = await step.sendEvent("tell", { name: "order.done", data: { of: letters.join("") } });
  return { letters, doubled, sent: ids.length };
});

wf.workflow("many", { checkpoint: { maxSteps: 5, maxTime: "10s" } }, async (ctx, step) => {
  let total = 0;
  for (let number = 0; number < 12; number += 1) {
    total += await step.run("add", () => {
      note(ctx, `add-${number}`);
      return number;
    });
  }
  await step.sleep("nap", "100ms");
  return total + (await step.run("after", () => 1));
});

wf.workflow("nested", { retries: 3 }, async (_ctx, step) =>
  step.run("outer", async () => {
    await step.run("inner", () => 1);
  }),
);

await wf.serve({ host: "127.0.0.1", port: 0, grace: 5 });
