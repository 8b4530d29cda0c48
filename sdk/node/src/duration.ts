/** Durations and times (protocol section 5); the rule book is `durations.json` of the protocol's test data. */

import { type Duration, StepArgumentError } from "./errors.js";
import { shown } from "./shown.js";

export const MAX_MS = 1_000_000_000_000_000;

const UNIT_MS = { w: 604_800_000n, d: 86_400_000n, h: 3_600_000n, m: 60_000n, s: 1_000n, ms: 1n } as const;
type Unit = keyof typeof UNIT_MS;
const NUMBER = /^[0-9]+(?:\.[0-9]+)?$/;
const UNITS = new RegExp(
  "^(?:(?<w>[0-9.]+)w)?(?:(?<d>[0-9.]+)d)?(?:(?<h>[0-9.]+)h)?(?:(?<m>[0-9.]+)m(?!s))?" +
    "(?:(?<s>[0-9.]+)s)?(?:(?<ms>[0-9.]+)ms)?$",
);
const ISO_WEEKS = /^P(?<w>[0-9.,]+)W$/;
const ISO = /^P(?:(?<d>[0-9.,]+)D)?(?<time>T(?:(?<h>[0-9.,]+)H)?(?:(?<m>[0-9.,]+)M)?(?:(?<s>[0-9.,]+)S)?)?$/;
const JS_NUMBER = /^(-?)([0-9]+)(?:\.([0-9]+))?(?:e([+-][0-9]+))?$/;
const LONGEST_TEXT = 100;
const TIME = /^(\d{4}-(\d{2})-(\d{2}))(?:[T ](\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?)(Z|[+-]\d{2}:\d{2})?)?$/;

/** A decimal number, exactly: `digits` / 10^`scale`. */
interface Decimal {
  digits: bigint;
  scale: number;
}

/**
 * The whole milliseconds of a duration, rounded half up in decimal arithmetic.
 *
 * Throws StepArgumentError (a TypeError) for everything that is not one, negative ones included.
 */
export function parseDuration(value: unknown): number {
  if (typeof value === "number" && Number.isFinite(value)) {
    return bounded(round(times(decimalOfNumber(value), UNIT_MS.s)), value);
  }
  if (typeof value === "string" && value !== "" && value.length <= LONGEST_TEXT) {
    if (NUMBER.test(value)) return bounded(round(times(decimal(value), UNIT_MS.s)), value);
    const parts = partsOf(value);
    if (parts.length > 0) return bounded(sum(parts, value), value);
  }
  throw notADuration(value);
}

/** A duration as an op carries it: the user's own text or number. `zero`: whether a duration of nothing is allowed. */
export function durationField(value: unknown, field: string, { zero = false } = {}): Duration {
  let milliseconds: number;
  try {
    milliseconds = parseDuration(value);
  } catch (error) {
    throw new StepArgumentError(`${field}: ${(error as Error).message}`);
  }
  if (milliseconds === 0 && !zero) throw new StepArgumentError(`${field}: must be longer than zero`);
  return value as Duration;
}

/** An absolute time as ISO-8601 in UTC; a text without an offset is UTC already. Throws StepArgumentError. */
export function timeField(value: unknown, field: string): string {
  const moment = value instanceof Date ? value : typeof value === "string" ? momentOf(value) : null;
  const year = moment?.getUTCFullYear() ?? Number.NaN;
  if (moment !== null && year >= 1 && year <= 9999) return moment.toISOString();
  throw new StepArgumentError(`${field}: ${shown(value)} is not a time; give a Date or ISO-8601 with an offset or Z`);
}

function momentOf(text: string): Date | null {
  const match = TIME.exec(text);
  if (match === null) return null;
  const [, date, month, day, time = "00:00", zone = "Z"] = match;
  const midnight = new Date(`${date}T00:00:00Z`);
  // Date takes the 30th of February for the 2nd of March.
  if (midnight.getUTCMonth() + 1 !== Number(month) || midnight.getUTCDate() !== Number(day)) return null;
  return new Date(`${date}T${time}${zone}`);
}

/** Unit and number text, largest first, of a unit string or an ISO-8601 duration; none if it is neither. */
function partsOf(text: string): [Unit, string][] {
  const match = ISO_WEEKS.exec(text) ?? ISO.exec(text) ?? UNITS.exec(text);
  const groups = match?.groups ?? {};
  if (groups["time"] === "T") return [];
  const units = Object.keys(UNIT_MS) as Unit[];
  const iso = text.startsWith("P");
  return units.flatMap((unit) => {
    const number = groups[unit];
    return number === undefined ? [] : [[unit, iso ? number.replaceAll(",", ".") : number] as [Unit, string]];
  });
}

function sum(parts: [Unit, string][], value: unknown): bigint {
  let whole = 0n;
  for (const [index, [unit, number]] of parts.entries()) {
    const isLast = index === parts.length - 1;
    if (!NUMBER.test(number) || (number.includes(".") && !isLast)) throw notADuration(value);
    const milliseconds = times(decimal(number), UNIT_MS[unit]);
    if (isLast)
      return round({
        digits: milliseconds.digits + whole * 10n ** BigInt(milliseconds.scale),
        scale: milliseconds.scale,
      });
    whole += milliseconds.digits;
  }
  return whole;
}

function decimal(text: string): Decimal {
  const [whole = "", fraction = ""] = text.split(".");
  return { digits: BigInt(whole + fraction), scale: fraction.length };
}

/** The shortest decimal that a number prints as: 1.005 is 1.005 here. */
function decimalOfNumber(value: number): Decimal {
  const match = JS_NUMBER.exec(String(value));
  if (match === null) throw notADuration(value);
  const [, sign = "", whole = "", fraction = "", exponent = "0"] = match;
  const digits = BigInt(sign + whole + fraction);
  const scale = fraction.length - Number(exponent);
  return scale >= 0 ? { digits, scale } : { digits: digits * 10n ** BigInt(-scale), scale: 0 };
}

function times(value: Decimal, factor: bigint): Decimal {
  return { digits: value.digits * factor, scale: value.scale };
}

function round({ digits, scale }: Decimal): bigint {
  const one = 10n ** BigInt(scale);
  const magnitude = digits < 0n ? -digits : digits;
  const rounded = (2n * magnitude + one) / (2n * one);
  return digits < 0n ? -rounded : rounded;
}

function bounded(milliseconds: bigint, value: unknown): number {
  if (milliseconds < 0n || milliseconds > BigInt(MAX_MS)) throw notADuration(value);
  return Number(milliseconds);
}

function notADuration(value: unknown): StepArgumentError {
  return new StepArgumentError(
    `${shown(value)} is not a duration; allowed are 500ms, 30s, 15m, 2h, 1d, 1w, combinations (1h30m), ISO-8601 ` +
      "(PT1H), or a number of seconds, up to 10^15 ms",
  );
}
