/** The engine as a function meets it: signed requests, answers read, results stored. */

import assert from "node:assert/strict";
import { Workflows, type WorkflowsOptions } from "../src/index.js";
import type { Logger } from "../src/logger.js";
import { sign } from "../src/signature.js";
import type { WorkflowFunction } from "../src/workflow.js";

export const KEY = "wfsk_test_0123456789abcdef0123456789abcdef012345";
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

/** All ops of one request to workflows that have a `w`; more than one only where `max_ops` is in `more`. */
export async function askAll(
  workflows: Workflows<any>,
  memo: Memo | Map<string, unknown>,
  more: Record<string, any> = {},
): Promise<Op[]> {
  const { body, headers } = await seal(executeText(memo, more));
  const answer = await workflows.handleRequest(body, headers);
  assert.equal(answer.status, 200, answer.body);
  const { ops } = JSON.parse(answer.body) as { ops: Op[] };
  assert.ok(ops.length >= 1 && ops.length <= Math.max(1, more["max_ops"] ?? 1), answer.body);
  assert.ok(
    ops.slice(0, -1).every((op) => op["op"] === "step_completed"),
    answer.body,
  );
  return ops;
}

/** The op of one request to workflows that have a `w`. */
export async function ask(workflows: Workflows<any>, memo: Memo | Map<string, unknown>, more = {}): Promise<Op> {
  const [op] = await askAll(workflows, memo, more);
  return op as Op;
}

/** The op of one invocation with these memoized steps, whatever they look like. */
export async function invoke(body: Body, memo: Memo = {}, options: WorkflowsOptions = {}, more = {}): Promise<Op> {
  const workflows = registry(options);
  workflows.workflow("w", {}, body);
  return ask(workflows, memo, more);
}

/** What the engine has stored of a run, and in how many answers it came, those that were lost among them. */
export interface Stored {
  readonly ops: Op[];
  readonly memo: Map<string, any>;
  answers: number;
}

/** How a run is driven: attempts of a step and of the function, fields of each request, and which answers are lost. */
export interface Drive {
  most?: number;
  attempts?: number;
  more?: Record<string, any>;
  loses?: (answer: number) => boolean;
}

/** Invokes `w` until its run has ended, without waiting for anything; waits and invokes memoize null. */
export async function drive(workflows: Workflows<any>, options: Drive = {}): Promise<Stored> {
  const { most = 100, attempts = 1, more = {}, loses = () => false } = options;
  const stored: Stored = { ops: [], memo: new Map(), answers: 0 };
  let attempt = 0;
  while (stored.answers < most) {
    const ops = await askAll(workflows, stored.memo, { ...more, run: { id: "r", attempt } });
    stored.answers += 1;
    for (const op of loses(stored.answers) ? [] : ops) {
      stored.ops.push(op);
      if (op["op"] === "run_completed" || op["op"] === "run_failed") return stored;
      assert.ok(!stored.memo.has(op["id"]), `step ${op["id"]} was answered twice`);
      const isFailed = op["op"] === "step_failed";
      attempt = isFailed && !op["non_retriable"] && attempt + 1 < attempts ? attempt + 1 : 0;
      if (attempt === 0) stored.memo.set(op["id"], isFailed ? { status: "failed", error: op["error"] } : result(op));
    }
  }
  return assert.fail(`the run did not end within ${most} invocations`);
}

function result(op: Op): object {
  const output = op["op"] === "send_event" ? { ids: ["01J0000000000000000000000C"] } : (op["output"] ?? null);
  return { status: "completed", output };
}

/** All ops until the run ends; each step is memoized as completed with its output (null for other steps). */
export async function runToEnd(body: Body, most = 100): Promise<Op[]> {
  const workflows = registry();
  workflows.workflow("w", {}, body);
  return (await drive(workflows, { most })).ops;
}

/** Lets everything that is ready go on. */
export function turn(): Promise<void> {
  return new Promise((resolve) => setImmediate(resolve));
}
