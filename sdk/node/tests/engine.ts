/** The engine as a function meets it: signed requests, answers read, results stored. */

import assert from "node:assert/strict";
import { Workflows, type WorkflowsOptions } from "../src/index.js";
import type { Logger } from "../src/logger.js";
import { sign } from "../src/signature.js";
import type { WorkflowFunction } from "../src/workflow.js";

export const KEY = "wfsk_test_vectors";
export const NOW = 1_700_000_000;

export type Op = Record<string, any>;
export type Memo = Record<string, Record<string, unknown>>;
export type Body = WorkflowFunction<any, any, unknown>;

/** What a workflow logged, by level. */
export class Lines implements Logger {
  readonly all: [level: string, ...data: unknown[]][] = [];

  debug = (...data: unknown[]): void => void this.all.push(["debug", ...data]);
  info = (...data: unknown[]): void => void this.all.push(["info", ...data]);
  warn = (...data: unknown[]): void => void this.all.push(["warn", ...data]);
  error = (...data: unknown[]): void => void this.all.push(["error", ...data]);
}

/** A registry whose clock stands still and whose lines go to `logger`. */
export function registry(options: WorkflowsOptions = {}): Workflows<any> {
  const fixed = { signingKey: KEY, signingKeyFallback: "", clock: () => NOW, logger: new Lines() };
  return new Workflows<any>({ ...fixed, ...options });
}

/** The text of an execute request. */
export function executeText(memo: Memo | Map<string, unknown>, more: Record<string, any> = {}): string {
  // By hand, because an object would put keys that are integers first.
  const entries = memo instanceof Map ? [...memo] : Object.entries(memo);
  const steps = entries.map(([id, step]) => `${JSON.stringify(id)}:${JSON.stringify(step)}`).join(",");
  const request = {
    type: "execute",
    protocol: "v1",
    ts: NOW,
    workflow: "w",
    run: {
      id: "01J0000000000000000000000A",
      attempt: 0,
      started_at: "2026-10-10T10:00:00.000Z",
      source: "api",
      replay: false,
      parent_run_id: null,
      test: false,
    },
    event: { id: "01J0000000000000000000000B", name: "a", data: {}, ts: NOW * 1000 },
    step_order: entries.map(([id]) => id),
    ...more,
  };
  return `${JSON.stringify(request).slice(0, -1)},"steps":{${steps}}}`;
}

/** A signed request: body and headers. */
export async function seal(
  request: string,
  key = KEY,
): Promise<{ body: Uint8Array<ArrayBuffer>; headers: Record<string, string> }> {
  const signature = `t=${NOW},v1=${await sign(key, NOW, request)}`;
  const envelope = JSON.stringify({ runr_workflow: "v1", signature, request });
  const body = new Uint8Array(new TextEncoder().encode(envelope));
  return { body, headers: { "X-RunR-Signature": signature, "X-RunR-Request-Id": "0123456789abcdef" } };
}

/** The op of one request to workflows that have a `w`. */
export async function ask(workflows: Workflows<any>, memo: Memo | Map<string, unknown>, more = {}): Promise<Op> {
  const { body, headers } = await seal(executeText(memo, more));
  const answer = await workflows.handleRequest(body, headers);
  assert.equal(answer.status, 200, answer.body);
  const { ops } = JSON.parse(answer.body) as { ops: Op[] };
  assert.equal(ops.length, 1);
  return ops[0] as Op;
}

/** The op of one invocation with these memoized steps, whatever they look like. */
export async function invoke(body: Body, memo: Memo = {}, options: WorkflowsOptions = {}, more = {}): Promise<Op> {
  const workflows = registry(options);
  workflows.workflow("w", {}, body);
  return ask(workflows, memo, more);
}

/** All ops until the run ends; each step is memoized as completed with its output (null for other steps). */
export async function runToEnd(body: Body, most = 100): Promise<Op[]> {
  const workflows = registry();
  workflows.workflow("w", {}, body);
  const memo = new Map<string, unknown>();
  const ops: Op[] = [];
  while (ops.length < most) {
    const op = await ask(workflows, memo);
    ops.push(op);
    if (op["op"] === "run_completed" || op["op"] === "run_failed") return ops;
    assert.ok(!memo.has(op["id"]), `step ${op["id"]} was answered twice`);
    const output = op["op"] === "send_event" ? { ids: ["01J0000000000000000000000C"] } : (op["output"] ?? null);
    memo.set(
      op["id"],
      op["op"] === "step_failed" ? { status: "failed", error: op["error"] } : { status: "completed", output },
    );
  }
  return assert.fail(`the run did not end within ${most} invocations`);
}

/** Lets everything that is ready go on. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
