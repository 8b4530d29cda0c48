/** The events of the project: their data by their names, for the workflows and for those who send them. */

export interface Order {
  order_id: string;
  total: number;
}

export type Events = {
  "order.created": Order;
  "order.shipped": { order_id: string; carrier: string };
  "order.cancelled": { order_id: string };
};
