/**
 * Options that nobody knows are refused by name: with what there is, and with what may have been meant.
 *
 * Types refuse them too, but not in plain JavaScript, and not where an object comes from elsewhere. One that was dropped
 * in silence would be worst where money moves: a key that is none starts a second run.
 */

import { UnknownOptionError } from "./errors.js";
import { shown } from "./shown.js";

/** All members of an interface, for the compiler to see that none is missing. */
export type Members<T> = Readonly<Record<keyof T, true>>;

/** Options of the product that this version does not have. */
const NOT_YET = ["priority", "rateLimit", "throttle", "debounce", "batch", "singleton", "onFailure"];

/** Names that other systems, or other places of this SDK, have for the same thing. */
const ALIKE = [
  ["key", "idempotencyKey", "id", "idempotency", "eventId", "dedupKey", "deduplicationId", "requestId"],
  ["retries", "retry", "maxRetries", "attempts", "maxAttempts"],
  ["data", "payload", "input", "body", "args", "params"],
  ["delay", "after", "countdown", "runIn", "wait"],
  ["at", "eta", "runAt", "when", "scheduledAt"],
  ["ts", "timestamp", "time", "occurredAt"],
  ["from", "since", "start", "createdAfter"],
  ["to", "until", "end", "createdBefore"],
  ["pageSize", "limit", "perPage", "count"],
  ["if", "condition", "filter"],
  ["fromStep", "step"],
  ["grace", "graceSeconds", "shutdownTimeout", "timeout"],
  ["signingKey", "secret", "key"],
  ["token", "apiKey", "secret", "auth"],
  ["url", "baseUrl", "address", "endpoint", "host"],
  ["name", "event", "type", "eventName"],
];

/** What is said of an option behind its name: `unknown (did you mean retries?); allowed are …`. */
export function unknownOption(name: string, allowed: readonly string[]): string {
  const listed = `allowed are ${allowed.join(", ")}`;
  const camel = name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  if (NOT_YET.includes(camel)) return `is not supported yet; ${listed}`;
  const meant = meantBy(camel, allowed);
  return meant === undefined ? `unknown; ${listed}` : `unknown (did you mean ${meant}?); ${listed}`;
}

/**
 * Throws an error of this kind with all members of `given` that are not allowed, or if it is no object. `what` is what
 * the message calls it; `prefix` is the path of its members.
 */
export function refuseUnknown(
  given: unknown,
  allowed: readonly string[],
  { what = "options", prefix = "", kind = UnknownOptionError }: { what?: string; prefix?: string; kind?: Kind } = {},
): void {
  if (typeof given !== "object" || given === null || Array.isArray(given)) {
    throw new kind(`${what}: an object with ${allowed.join(", ")}, not ${shown(given, 50)}`);
  }
  const faults = Object.keys(given)
    .filter((name) => !allowed.includes(name))
    .map((name) => `${prefix}${named(name)}: ${unknownOption(name, allowed)}`);
  if (faults.length > 0) throw new kind(faults.join("; "));
}

type Kind = new (message: string) => Error;

function named(name: string): string {
  return /^[\p{L}\p{N}\p{P}\p{S}]{1,50}$/u.test(name) ? name : shown(name, 50);
}

/** The option of which this may be another name, or a slip. */
function meantBy(camel: string, allowed: readonly string[]): string | undefined {
  if (allowed.includes(camel)) return camel;
  for (const group of ALIKE.filter((names) => names.includes(camel))) {
    const found = group.find((name) => allowed.includes(name));
    if (found !== undefined) return found;
  }
  const near = allowed
    .map((name) => ({ name, slips: slipsBetween(camel.slice(0, 50), name) }))
    .filter(({ name, slips }) => slips <= Math.max(1, Math.floor(name.length / 3)) && slips < name.length)
    .sort((one, other) => one.slips - other.slips);
  return near[0]?.name;
}

/** How many letters are wrong, missing, too many, or have changed places with the next. */
function slipsBetween(one: string, other: string): number {
  let before: number[] = [];
  let last = Array.from({ length: other.length + 1 }, (_, index) => index);
  for (let i = 1; i <= one.length; i += 1) {
    const row = [i];
    for (let j = 1; j <= other.length; j += 1) {
      const isSame = one[i - 1] === other[j - 1];
      let least = Math.min(at(last, j) + 1, at(row, j - 1) + 1, at(last, j - 1) + (isSame ? 0 : 1));
      if (i > 1 && j > 1 && one[i - 1] === other[j - 2] && one[i - 2] === other[j - 1]) {
        least = Math.min(least, at(before, j - 2) + 1);
      }
      row.push(least);
    }
    [before, last] = [last, row];
  }
  return at(last, other.length);
}

function at(row: readonly number[], index: number): number {
  return row[index] ?? Number.POSITIVE_INFINITY;
}
