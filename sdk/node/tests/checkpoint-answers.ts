/** Answers of several ops, and how tests name them. */

import { type Body, type Memo, type Op, askAll, drive, registry } from "./engine.js";

/** Ops of steps that were completed. */
export const done = (...ids: string[]): string[] => ids.map((id) => `step_completed ${id}`);
/** Ops by their kinds and ids. */
export const named = (ops: Op[]): string[] => ops.map((op) => (op["id"] === undefined ? op["op"] : `${op["op"]} ${op["id"]}`));

/** What one request is answered with. */
export async function answer(body: Body, more: Record<string, unknown> = { max_ops: 50 }, memo: Memo = {}): Promise<Op[]> {
  const workflows = registry();
  workflows.workflow("w", {}, body);
  return askAll(workflows, memo, more);
}

/** A run to its end. */
export async function run(body: Body, max_ops?: number): ReturnType<typeof drive> {
  const workflows = registry();
  workflows.workflow("w", {}, body);
  return drive(workflows, max_ops === undefined ? {} : { more: { max_ops } });
}
