/** Step calls as values: what the user asked for, checked, before it has an id in the run (protocol section 3). */

import { durationField, timeField } from "./duration.js";
import { type Duration, StepArgumentError } from "./errors.js";
import { EVENT_MEMBERS } from "./event.js";
import { refuseUnknown } from "./known-options.js";
import { shown, typeName } from "./shown.js";
import type { Where } from "./middleware.js";
import { encode } from "./values.js";

const MAX_INPUT_BYTES = 32 * 1024;
const MAX_EVENTS = 100;
const MAX_RETRIES = 20;

/** What becomes of the data of an event on its way out. */
type EncodeData = (data: unknown) => Promise<unknown>;

/**
 * One call of a step method. `fields` are the op's own; only `run` has a `body`, to be executed now. `encoded` makes the
 * fields with the data in them encoded, where there is data.
 */
export interface StepCall {
  readonly op: string;
  readonly userId: string;
  readonly fields: Readonly<Record<string, unknown>>;
  readonly body?: () => unknown;
  readonly args?: readonly unknown[];
  readonly encoded?: (encode: EncodeData) => Promise<Readonly<Record<string, unknown>>>;
}

/** How long to wait for which event; see `step.waitForEvent`. */
export interface WaitOptions<Name extends string = string> {
  event: Name;
  match?: string | undefined;
  if?: string | undefined;
  timeout?: Duration | undefined;
  lookback?: Duration | undefined;
}

/** Which workflow to start with what; see `step.invoke`. */
export interface InvokeOptions {
  workflow: string | { readonly name: string };
  data?: object | undefined;
  timeout?: Duration | undefined;
}

/** `step.run`: the input is the list of arguments. */
export function runCall(
  userId: string,
  fn: (...args: never[]) => unknown,
  args: readonly unknown[],
  maxAttempts: number | null,
): StepCall {
  if (typeof fn !== "function") {
    throw new StepArgumentError(`step.run needs a function: step.run(${shown(userId)}, fn, arg); got ${typeName(fn)}`);
  }
  const fields = maxAttempts === null ? {} : { max_attempts: maxAttempts };
  const call = { op: "run", userId, fields, body: () => fn(...(args as never[])) };
  return args.length > 0 ? { ...call, args } : call;
}

/** `step.sleep`: zero wakes at once. */
export function sleepCall(userId: string, duration: Duration): StepCall {
  return { op: "sleep", userId, fields: { duration: durationField(duration, "duration", { zero: true }) } };
}

/** `step.sleepUntil`: a time in the past wakes at once. */
export function sleepUntilCall(userId: string, when: Date | string): StepCall {
  return { op: "sleep", userId, fields: { until: timeField(when, "when") } };
}

/** `step.waitForEvent`; `lookback` may also be `"run"`. Name and expressions are judged in `asked.ts`. */
export function waitCall(userId: string, options: WaitOptions): StepCall {
  const given = optionsOf(options, "{ event: 'order.shipped' }", ["event", "match", "if", "timeout", "lookback"]);
  const fields: Record<string, unknown> = { event: text(given["event"], "event") };
  if (given["match"] !== undefined) fields["match"] = text(given["match"], "match");
  if (given["if"] !== undefined) fields["if"] = text(given["if"], "if");
  if (given["timeout"] !== undefined) fields["timeout"] = durationField(given["timeout"], "timeout");
  const lookback = given["lookback"];
  if (lookback !== undefined) fields["lookback"] = lookback === "run" ? "run" : durationField(lookback, "lookback", { zero: true });
  return { op: "wait_for_event", userId, fields };
}

/** `step.invoke`: `workflow` is a name or what `wf.workflow` returned, of the same project. */
export function invokeCall(userId: string, options: InvokeOptions): StepCall {
  const given = optionsOf(options, "{ workflow: 'charge' }", ["workflow", "data", "timeout"]);
  const workflow = given["workflow"];
  const isHandle = typeof workflow === "object" && workflow !== null;
  const name = isHandle ? (workflow as { name?: unknown }).name : workflow;
  if (typeof name !== "string" || name === "") {
    throw new StepArgumentError(`workflow: a name or what wf.workflow returned, not ${shown(workflow)}`);
  }
  const data = given["data"] ?? {};
  if (typeof data !== "object" || Array.isArray(data)) {
    throw new StepArgumentError(`data: an object, not ${Array.isArray(data) ? "an array" : typeName(data)}`);
  }
  const fields: Record<string, unknown> = { workflow: name, data };
  if (given["timeout"] !== undefined) fields["timeout"] = durationField(given["timeout"], "timeout");
  return { op: "invoke", userId, fields, encoded: async (encode) => ({ ...fields, data: await encode(data) }) };
}

/** `step.sendEvent`: one event or a list of 1–100. */
export function sendCall(userId: string, events: unknown): StepCall {
  const listed: unknown[] = Array.isArray(events) ? events : [events];
  if (listed.length < 1 || listed.length > MAX_EVENTS) {
    throw new StepArgumentError(`events: an event or a list of 1 to ${MAX_EVENTS} of them, not ${listed.length}`);
  }
  const given = listed.map(eventOf);
  const encoded = async (encode: EncodeData): Promise<Record<string, unknown>> => ({
    events: await Promise.all(given.map(async (event) => ({ ...event, data: await encode(event["data"] ?? {}) }))),
  });
  return { op: "send_event", userId, fields: { events: given }, encoded };
}

/** `options({ retries })` as the op carries it: attempts = retries + 1. */
export function maxAttemptsOf(options: { retries: number }): number {
  const { retries } = optionsOf(options, "{ retries: 0 }", ["retries"]);
  if (!Number.isInteger(retries) || (retries as number) < 0 || (retries as number) > MAX_RETRIES) {
    throw new StepArgumentError(`retries: an integer from 0 to ${MAX_RETRIES}, not ${shown(retries)}`);
  }
  return (retries as number) + 1;
}

/** What a call resolves with, as middleware knows it; null for what the engine has made alone. */
export function storedAs(call: StepCall): Where | null {
  if (call.op === "run") return "step";
  if (call.op === "invoke") return "run";
  return call.op === "wait_for_event" ? "event" : null;
}

/** The JSON of the arguments of `run`, for the timeline; null if there are none, or they are not small JSON. */
export function inputText(args: unknown): string | null {
  if (args === undefined) return null;
  let text: string;
  try {
    text = encode(args);
  } catch {
    return null;
  }
  return new TextEncoder().encode(text).length <= MAX_INPUT_BYTES ? text : null;
}

function optionsOf(options: unknown, like: string, allowed: readonly string[]): Record<string, unknown> {
  if (typeof options !== "object" || options === null) {
    throw new StepArgumentError(`options: an object like ${like}, not ${shown(options)}`);
  }
  refuseUnknown(options, allowed, { kind: StepArgumentError });
  return options as Record<string, unknown>;
}

function eventOf(item: unknown, index: number): Record<string, unknown> {
  const event = typeof item === "object" && item !== null ? (item as Record<string, unknown>) : {};
  if (typeof event["name"] !== "string") {
    const like = "{ name: 'order.paid', data: {} }";
    throw new StepArgumentError(`events[${index}]: an object with a name, like ${like}, not ${shown(item)}`);
  }
  // What an event does not have stays, to be refused with what else the engine does not take (`asked.ts`).
  const isKept = ([name, value]: [string, unknown]): boolean => value != null || !EVENT_MEMBERS.includes(name);
  const given = Object.fromEntries(Object.entries(event).filter(isKept));
  const ts = event["ts"];
  return ts instanceof Date ? { ...given, ts: Date.parse(timeField(ts, `events[${index}].ts`)) } : given;
}

function text(value: unknown, name: string): string {
  if (typeof value !== "string" || value === "") {
    throw new StepArgumentError(`${name}: a non-empty string, not ${shown(value)}`);
  }
  return value;
}
