/** Orders: charge, reserve, wait out the fraud check, wait for the shipment, else refund. */

import { Workflows } from "@runr/workflows";
import type { Events } from "./events.js";
import { chargeCard, notify, refund, releaseStock, reserveStock } from "./shop.js";

export const wf = new Workflows<Events>();

export const processOrder = wf.workflow(
  "process-order",
  {
    description: "Charges an order, holds it for the fraud check, and refunds it when it is not shipped.",
    triggers: [{ event: "order.created" }],
    retries: 4,
    cancelOn: [{ event: "order.cancelled", match: "data.order_id" }],
  },
  async (ctx, step) => {
    const order = ctx.event.data;
    const key = (id: string): string => `${ctx.runId}:${id}`;
    const charge = await step.run("charge-card", chargeCard, order, key("charge-card"));
    const reservation = await step.run("reserve-stock", reserveStock, order, key("reserve-stock"));
    await step.sleep("fraud-check-window", process.env["ORDERS_FRAUD_CHECK"] ?? "10m");
    const shipped = await step.waitForEvent("shipped", {
      event: "order.shipped",
      match: "data.order_id",
      timeout: "3d",
      lookback: "run",
    });
    if (shipped === null) {
      await step.run("release-stock", releaseStock, reservation, key("release-stock"));
      const { refunded } = await step.run("refund", refund, charge, key("refund"));
      return { shipped: false as const, refunded };
    }
    await step.run("notify", notify, order, shipped.data.carrier, key("notify"));
    return { shipped: true as const, carrier: shipped.data.carrier };
  },
);
