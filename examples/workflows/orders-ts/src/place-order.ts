/** Places an order, ships it, and waits for what becomes of it: `node dist/place-order.js ORDER TOTAL`. */

import { Client, RunFailed } from "@runr/workflows/client";
import type { Events } from "./events.js";
import { processOrder } from "./orders.js";

const [order_id = "o-1", total = "42"] = process.argv.slice(2);
// RUNR_API_URL and RUNR_TOKEN say where.
const client = new Client<Events>({ project: process.env["RUNR_PROJECT"] });

const run = await client.start(processOrder, { data: { order_id, total: Number(total) }, key: order_id });
console.log(run.isNew ? `started ${run.id}` : `${order_id} was placed before: ${run.id}`);
await client.send({ name: "order.shipped", id: `shipped-${order_id}`, data: { order_id, carrier: "dhl" } });
try {
  const result = await run.result({ timeout: "5m" });
  console.log(result.shipped ? `shipped by ${result.carrier}` : `refunded ${result.refunded}`);
} catch (error) {
  if (!(error instanceof RunFailed)) throw error;
  console.log(`${error.status}: ${error.error?.message}`);
}
