/** What the steps do. One may be executed twice: by `key` the payment gateway and the stock know that it is the same. */

import { NonRetriableError } from "@runr/workflows";
import type { Order } from "./events.js";

export interface Charge {
  charge_id: string;
  amount: number;
}

/** Takes the money. */
export async function chargeCard(order: Order, key: string): Promise<Charge> {
  record("charge-card", key);
  if (!(order.total >= 0))
    throw new NonRetriableError(`total must be a number that is not negative, not ${order.total}`);
  return { charge_id: `ch-${order.order_id}`, amount: order.total };
}

/** Takes the goods off the shelf. */
export async function reserveStock(order: Order, key: string): Promise<{ reservation_id: string }> {
  record("reserve-stock", key);
  return { reservation_id: `rs-${order.order_id}` };
}

/** Puts the goods back. */
export async function releaseStock(reservation: { reservation_id: string }, key: string): Promise<void> {
  record(`release-stock ${reservation.reservation_id}`, key);
}

/** Gives the money back. */
export async function refund(charge: Charge, key: string): Promise<{ refunded: number }> {
  record("refund", key);
  return { refunded: charge.amount };
}

/** Tells the customer that the order is on its way. */
export async function notify(order: Order, carrier: string, key: string): Promise<void> {
  record(`notify ${order.order_id} by ${carrier}`, key);
}

function record(what: string, key: string): void {
  console.log(`${key}: ${what}`);
}
