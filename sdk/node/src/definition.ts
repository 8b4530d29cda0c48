/**
 * Workflow definitions: the options of `wf.workflow`, checked when it is called (engine section 1).
 *
 * What the engine takes is taken, and what it refuses is refused, in all but time zones: it may know others than the
 * runtime.
 */

import { MAX_MS, parseDuration } from "./duration.js";
import { DefinitionError } from "./errors.js";
import { unknownOption } from "./known-options.js";
import { cronFault } from "./rules/cron.js";
import { listenerFault, streamFault } from "./rules/event-names.js";
import { parse, parseMatch, parseOfEvent } from "./rules/expression.js";
import { ExpressionError } from "./rules/tokens.js";
import { faulty, shown, typeName } from "./shown.js";

type Options = Readonly<Record<string, unknown>>;
/** Adds the faults of a value at a path. */
type Check = (value: unknown, path: string, faults: string[]) => void;

const LONGEST_TEXT = 1000;
const DAY_MS = 86_400_000;
const NAME = /^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$/;
const ZONE = /^[A-Za-z0-9+_-]+(?:\/[A-Za-z0-9+_-]+)*$/;
const RESERVED = ["app", "sync"];
/** What a trigger of each kind may have. */
const TRIGGERS: Readonly<Record<string, Readonly<Record<string, Check>>>> = {
  event: { event: named(listenerFault), if: expression(parse) },
  cron: { cron: shownIn(cronFault), timezone, catchUp: oneOf(["latest", "all", "none"]) },
  queue: { queue: named(streamFault) },
};
const LIMIT: Readonly<Record<string, Check>> = { limit: integer(1, 10_000), key: expression(parseOfEvent) };
const CANCEL: Readonly<Record<string, Check>> = {
  event: named(listenerFault),
  match: expression(parseMatch),
  if: expression(parse),
  timeout: duration(1, MAX_MS, "longer than zero"),
};
const CHECKPOINT: Readonly<Record<string, Check>> = {
  maxSteps: integer(1, 1000),
  maxTime: duration(1, 300_000, "longer than zero and up to 5m"),
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
  const nameFault = workflowNameFault(name);
  const faults = nameFault === null ? [] : [`name: ${faulty(name, nameFault)}`];
  const given: Record<string, unknown> = {};
  if (isObject(options)) {
    for (const [key, value] of Object.entries(options)) {
      const check = Object.hasOwn(CHECKS, key) ? CHECKS[key] : undefined;
      if (check === undefined) faults.push(`${key}: ${unknownOption(key, Object.keys(CHECKS))}`);
      else if (value != null) check(value, key, faults);
      given[key] = value;
    }
  } else faults.push(`options: an object like { triggers: [{ event: 'order.created' }] }, not ${typeName(options)}`);
  faults.push(...functionFaults(fn));
  if (faults.length > 0) throw new DefinitionError(name, faults);
  return { name, ...(plain(given) as object) };
}

/** Why no workflow may have this name; null if one may. */
export function workflowNameFault(name: unknown): string | null {
  if (typeof name !== "string" || !NAME.test(name)) {
    return "1 to 100 letters, digits and . _ - beginning with a letter or digit";
  }
  return RESERVED.includes(name) ? `${shown(name)} is reserved` : null;
}

function functionFaults(fn: unknown): string[] {
  if (typeof fn !== "function") return [`function: (ctx, step) => …, not ${typeName(fn)}`];
  if (Object.prototype.toString.call(fn).includes("Generator")) {
    return ["function: it is a generator; steps are awaited, not yielded"];
  }
  return fn.length > 2 ? [`function: it takes two arguments, (ctx, step), not ${fn.length}`] : [];
}

function description(value: unknown, path: string, faults: string[]): void {
  if (typeof value !== "string" || [...value].length > 1000) {
    faults.push(`${path}: a text of at most 1,000 characters, not ${described(value)}`);
  } else if (value.includes("\0") || !value.isWellFormed()) {
    faults.push(`${path}: a text without NUL and lone surrogates, not ${shown(value, 50)}`);
  }
}

function trigger(value: unknown, path: string, faults: string[]): void {
  const kinds = isObject(value) ? Object.keys(TRIGGERS).filter((kind) => value[kind] != null) : [];
  const [kind] = kinds;
  if (!isObject(value) || kind === undefined || kinds.length !== 1) {
    const like = "{ event: 'order.created' }";
    faults.push(
      `${path}: an object with exactly one of event, cron and queue, like ${like}, not ${shown(value, 50)}`,
    );
    return;
  }
  // What another kind would have may be there and be nothing.
  const given = Object.entries(value).filter(([key, item]) => item != null || !Object.hasOwn(TRIGGERS, key));
  members(Object.fromEntries(given), path, TRIGGERS[kind] ?? {}, faults);
}

function concurrency(value: unknown, path: string, faults: string[]): void {
  (Array.isArray(value) ? each(2, limit) : limit)(value, path, faults);
}

function limit(value: unknown, path: string, faults: string[]): void {
  if (typeof value === "number" && Number.isInteger(value)) LIMIT["limit"]?.(value, `${path}.limit`, faults);
  else if (isObject(value)) required(value, path, "limit", LIMIT, faults);
  else {
    const like = "{ limit: 5, key: 'event.data.customer_id' }";
    faults.push(`${path}: an integer from 1 to 10,000, or an object like ${like}, not ${shown(value, 50)}`);
  }
}

function cancel(value: unknown, path: string, faults: string[]): void {
  if (isObject(value)) required(value, path, "event", CANCEL, faults);
  else {
    const like = "{ event: 'order.cancelled', match: 'data.order_id' }";
    faults.push(`${path}: an object like ${like}, not ${shown(value, 50)}`);
  }
}

function checkpoint(value: unknown, path: string, faults: string[]): void {
  if (isObject(value)) required(value, path, "maxSteps", CHECKPOINT, faults);
  else faults.push(`${path}: an object like { maxSteps: 50, maxTime: '5s' }, not ${shown(value, 50)}`);
}

/** As `members`; the member of this name must be there. */
function required(
  value: Options,
  path: string,
  name: string,
  checks: Readonly<Record<string, Check>>,
  faults: string[],
): void {
  if (value[name] == null) checks[name]?.(value[name], `${path}.${name}`, faults);
  members(value, path, checks, faults);
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
    if (!Array.isArray(value)) {
      faults.push(`${path}: a list, not ${shown(value, 50)}`);
      return;
    }
    if (value.length > most) faults.push(`${path}: at most ${most} entries, not ${value.length}`);
    value.slice(0, most).forEach((item, index) => check(item, `${path}[${index}]`, faults));
  };
}

function unknown(item: Options, path: string, allowed: readonly string[], faults: string[]): void {
  for (const key of Object.keys(item)) {
    if (!allowed.includes(key)) faults.push(`${path}.${key}: ${unknownOption(key, allowed)}`);
  }
}

/** A name that keeps to a rule of the engine, which says what is wrong, or null. */
function named(faultOf: (value: unknown) => string | null): Check {
  return (value, path, faults) => {
    const fault = value == null ? "the name of an event" : faultOf(value);
    if (fault !== null) faults.push(`${path}: ${faulty(value, fault)}`);
  };
}

/** A text that keeps to such a rule, and is shown with what is wrong. */
function shownIn(faultOf: (value: string) => string | null): Check {
  return (value, path, faults) => {
    if (typeof value !== "string" || value === "" || [...value].length > LONGEST_TEXT) {
      faults.push(`${path}: a non-empty text of at most 1,000 characters, not ${described(value)}`);
      return;
    }
    const fault = faultOf(value);
    if (fault !== null) faults.push(`${path}: ${fault}, in ${shown(value)}`);
  };
}

function expression(read: (value: string) => unknown): Check {
  return shownIn((value) => expressionFault(read, value));
}

/** Why the engine refuses an expression; null if it does not. */
export function expressionFault(read: (value: string) => unknown, value: string): string | null {
  try {
    read(value);
    return null;
  } catch (error) {
    if (error instanceof ExpressionError) return error.message;
    throw error;
  }
}

function timezone(value: unknown, path: string, faults: string[]): void {
  if (typeof value === "string" && ZONE.test(value)) return;
  const allowed = "an IANA timezone, exactly spelled, such as Europe/Istanbul or UTC";
  faults.push(`${path}: ${allowed}, not ${shown(value, 50)}`);
}

/** A value of which the size may be what is wrong. */
function described(value: unknown): string {
  if (typeof value !== "string") return shown(value, 50);
  return value === "" ? "an empty one" : `${[...value].length.toLocaleString("en")} characters`;
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
