/**
 * Workflow definitions: the options of `wf.workflow`, checked when it is called (engine section 1).
 *
 * All but time zones, which the engine judges at sync: it may know others than the runtime.
 */

import { parseDuration } from "./duration.js";
import { DefinitionError } from "./errors.js";
import { cronFault } from "./rules/cron.js";
import { listenerFault, senderFault } from "./rules/event-names.js";
import { parse, parseMatch, parseOfEvent } from "./rules/expression.js";
import { ExpressionError } from "./rules/tokens.js";
import { shown, typeName } from "./shown.js";

type Options = Readonly<Record<string, unknown>>;
/** Adds the faults of a value at a path. */
type Check = (value: unknown, path: string, faults: string[]) => void;

const LONGEST_TEXT = 1000;
const DAY_MS = 86_400_000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const RESERVED = ["app", "sync"];
/** What a trigger of each kind may have. */
const TRIGGERS: Readonly<Record<string, Readonly<Record<string, Check>>>> = {
  event: { event: ruled(listenerFault), if: expression(parse) },
  cron: { cron: ruled(cronFault), timezone: text, catchUp: oneOf(["latest", "all", "none"]) },
  queue: { queue: ruled((stream) => senderFault(`queue/${stream}`)) },
};
const CANCEL: Readonly<Record<string, Check>> = {
  event: ruled(listenerFault),
  match: expression(parseMatch),
  if: expression(parse),
  timeout: duration(1, 366 * DAY_MS, "up to 366d"),
};
const SNAKE: Readonly<Record<string, string>> = {
  cancelOn: "cancel_on",
  catchUp: "catch_up",
  maxSteps: "max_steps",
  maxTime: "max_time",
};

const CHECKS: Readonly<Record<string, Check>> = {
  description,
  triggers: each(10, trigger),
  retries: integer(0, 20),
  timeout: duration(1000, 366 * DAY_MS, "from 1s to 366d"),
  concurrency,
  idempotency: expression(parseOfEvent),
  cancelOn: each(5, cancel),
  checkpoint,
};

/**
 * The definition for the introspect answer; options that are undefined or null are left out.
 *
 * Throws DefinitionError with every fault found.
 */
export function buildDefinition(name: unknown, options: unknown, fn: unknown): Record<string, unknown> {
  const faults = nameFaults(name);
  const given: Record<string, unknown> = {};
  if (isObject(options)) {
    for (const [key, value] of Object.entries(options)) {
      const check = Object.hasOwn(CHECKS, key) ? CHECKS[key] : undefined;
      if (value == null) continue;
      if (check === undefined) faults.push(`${key}: unknown; allowed are ${Object.keys(CHECKS).join(", ")}`);
      else check(value, key, faults);
      given[key] = value;
    }
  } else faults.push(`options: an object like { triggers: [{ event: 'order.created' }] }, not ${typeName(options)}`);
  faults.push(...functionFaults(fn));
  if (faults.length > 0) throw new DefinitionError(name, faults);
  return { name, ...(plain(given) as object) };
}

function nameFaults(name: unknown): string[] {
  if (typeof name !== "string" || !NAME.test(name)) {
    return ["name: 1 to 100 letters, digits and . _ -, beginning with a letter or digit"];
  }
  return RESERVED.includes(name) ? [`name: ${shown(name)} is reserved`] : [];
}

function functionFaults(fn: unknown): string[] {
  if (typeof fn !== "function") return [`function: (ctx, step) => …, not ${typeName(fn)}`];
  if (Object.prototype.toString.call(fn).includes("Generator")) {
    return ["function: it is a generator; steps are awaited, not yielded"];
  }
  return fn.length > 2 ? [`function: it takes two arguments, (ctx, step), not ${fn.length}`] : [];
}

function description(value: unknown, path: string, faults: string[]): void {
  if (typeof value !== "string" || [...value].length > 1000) faults.push(`${path}: a text of at most 1,000 characters`);
  else if (value.includes("\0") || !value.isWellFormed()) faults.push(`${path}: no NUL and no lone surrogates`);
}

function trigger(value: unknown, path: string, faults: string[]): void {
  const kinds = isObject(value) ? Object.keys(TRIGGERS).filter((kind) => value[kind] != null) : [];
  const [kind] = kinds;
  if (!isObject(value) || kind === undefined || kinds.length !== 1) {
    faults.push(`${path}: an object with exactly one of event, cron and queue, like { event: 'order.created' }`);
    return;
  }
  members(value, path, TRIGGERS[kind] ?? {}, faults);
}

function concurrency(value: unknown, path: string, faults: string[]): void {
  (Array.isArray(value) ? each(2, limit) : limit)(value, path, faults);
}

function limit(value: unknown, path: string, faults: string[]): void {
  if (!isObject(value)) {
    integer(1, 10_000)(value, path, faults);
    return;
  }
  integer(1, 10_000)(value["limit"], `${path}.limit`, faults);
  unknown(value, path, ["limit", "key"], faults);
  if (value["key"] != null) expression(parseOfEvent)(value["key"], `${path}.key`, faults);
}

function cancel(value: unknown, path: string, faults: string[]): void {
  if (!isObject(value)) {
    faults.push(`${path}: an object like { event: 'order.cancelled', match: 'data.order_id' }`);
    return;
  }
  if (value["event"] == null) text(value["event"], `${path}.event`, faults);
  members(value, path, CANCEL, faults);
}

function checkpoint(value: unknown, path: string, faults: string[]): void {
  if (!isObject(value)) {
    faults.push(`${path}: an object like { maxSteps: 50, maxTime: '5s' }`);
    return;
  }
  unknown(value, path, ["maxSteps", "maxTime"], faults);
  integer(1, 1000)(value["maxSteps"], `${path}.maxSteps`, faults);
  if (value["maxTime"] != null) {
    duration(1, 300_000, "longer than zero and up to 5m")(value["maxTime"], `${path}.maxTime`, faults);
  }
}

/** Checks the members of an object that are given, and refuses others. */
function members(value: Options, path: string, checks: Readonly<Record<string, Check>>, faults: string[]): void {
  unknown(value, path, Object.keys(checks), faults);
  for (const [key, check] of Object.entries(checks)) {
    if (value[key] != null) check(value[key], `${path}.${key}`, faults);
  }
}

function each(most: number, check: Check): Check {
  return (value, path, faults) => {
    if (!Array.isArray(value)) faults.push(`${path}: a list, not ${typeName(value)}`);
    else if (value.length > most) faults.push(`${path}: at most ${most} entries, not ${value.length}`);
    else value.forEach((item, index) => check(item, `${path}[${index}]`, faults));
  };
}

function unknown(item: Options, path: string, allowed: readonly string[], faults: string[]): void {
  for (const key of Object.keys(item)) {
    if (!allowed.includes(key)) faults.push(`${path}.${key}: unknown; allowed are ${allowed.join(", ")}`);
  }
}

function text(value: unknown, path: string, faults: string[]): void {
  if (typeof value !== "string" || value === "" || [...value].length > LONGEST_TEXT) {
    faults.push(`${path}: a non-empty text of at most 1,000 characters`);
  }
}

/** A text that keeps to a rule of the engine, which says what is wrong, or null. */
function ruled(faultOf: (value: string) => string | null): Check {
  return (value, path, faults) => {
    const before = faults.length;
    text(value, path, faults);
    if (faults.length > before) return;
    const fault = faultOf(value as string);
    if (fault !== null) faults.push(`${path}: ${fault}`);
  };
}

function expression(read: (value: string) => unknown): Check {
  return ruled((value) => {
    try {
      read(value);
      return null;
    } catch (error) {
      if (error instanceof ExpressionError) return error.message;
      throw error;
    }
  });
}

function oneOf(allowed: readonly string[]): Check {
  return (value, path, faults) => {
    if (allowed.includes(value as string)) return;
    faults.push(`${path}: one of ${allowed.join(", ")}, not ${shown(value, 50)}`);
  };
}

function integer(low: number, high: number): Check {
  return (value, path, faults) => {
    if (!Number.isInteger(value) || (value as number) < low || (value as number) > high) {
      faults.push(`${path}: an integer from ${low} to ${high.toLocaleString("en")}, not ${shown(value, 50)}`);
    }
  };
}

function duration(low: number, high: number, allowed: string): Check {
  return (value, path, faults) => {
    try {
      const milliseconds = parseDuration(value);
      if (milliseconds < low || milliseconds > high) faults.push(`${path}: ${allowed}, not ${shown(value, 50)}`);
    } catch (error) {
      faults.push(`${path}: ${(error as Error).message}`);
    }
  };
}

function isObject(value: unknown): value is Options {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** As the wire has it: names in snake case, what is undefined or null left out. */
function plain(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(plain);
  if (!isObject(value)) return value;
  const members = Object.entries(value).filter(([, item]) => item != null);
  return Object.fromEntries(members.map(([key, item]) => [SNAKE[key] ?? key, plain(item)]));
}
