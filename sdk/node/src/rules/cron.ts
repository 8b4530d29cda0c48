/**
 * Cron lines (engine section 9): what is wrong with one. When they fire, the engine knows.
 *
 *     minute (0-59)  hour (0-23)  day of month (1-31 or L)  month (1-12 or JAN-DEC)  day of week (0-7 or SUN-SAT)
 *
 * A field is a list of `*`, `N`, `N-M`, each with an optional `/step`.
 */

import { quoted } from "./tokens.js";

interface Field {
  readonly name: string;
  readonly low: number;
  readonly high: number;
  /** The names of the numbers from `low` on. */
  readonly names: readonly string[];
}

const MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const DAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];
const MINUTE: Field = { name: "minute", low: 0, high: 59, names: [] };
const HOUR: Field = { name: "hour", low: 0, high: 23, names: [] };
const DAY_OF_MONTH: Field = { name: "day of month", low: 1, high: 31, names: [] };
const MONTH: Field = { name: "month", low: 1, high: 12, names: MONTHS };
const DAY_OF_WEEK: Field = { name: "day of week", low: 0, high: 7, names: DAYS };
const ITEM = /^(?:(?<star>\*)|(?<first>[0-9]+|[A-Za-z]+)(?:-(?<last>[0-9]+|[A-Za-z]+))?)(?:\/(?<step>[0-9]+))?$/;
/** Days of each month in its longest year. */
const LONGEST = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];

/** A fault of a line, in the words of the engine. */
class CronFault extends Error {}

/** Why a text is no cron line; null if it is one. */
export function cronFault(text: string): string | null {
  try {
    check(text);
    return null;
  } catch (error) {
    if (error instanceof CronFault) return error.message;
    throw error;
  }
}

function check(text: string): void {
  const texts = text.split(/[ \t]+/).filter((each) => each !== "");
  const [macro = ""] = texts;
  if (macro.startsWith("@")) {
    throw new CronFault(`macros such as ${quoted(macro.slice(0, 20))} are not taken: write the five fields`);
  }
  if (texts.length !== 5) {
    const fields = "a cron expression has five fields (minute hour day month weekday)";
    throw new CronFault(`${fields}, this has ${texts.length}`);
  }
  const [minuteText = "", hourText = "", dayText = "", monthText = "", weekdayText = ""] = texts;
  // The days first, as the engine does: of several faults it tells the same one.
  const days = numbersOf(DAY_OF_MONTH, dayText);
  numbersOf(MINUTE, minuteText);
  numbersOf(HOUR, hourText);
  const months = numbersOf(MONTH, monthText);
  numbersOf(DAY_OF_WEEK, weekdayText);
  const isBoth = dayText.startsWith("*") || weekdayText.startsWith("*");
  const longest = Math.max(...months.map((month) => LONGEST[month - 1] ?? 0));
  const first = Math.min(...days);
  if (isBoth && !dayText.split(",").includes("L") && first > longest) {
    throw new CronFault(`never fires: no month of [${months.join(", ")}] has a day ${first}`);
  }
}

/** The numbers of a field, in order; the `L` of the day of month is none. */
function numbersOf(field: Field, text: string): number[] {
  const numbers = new Set<number>();
  for (const item of text.split(",")) {
    if (field === DAY_OF_MONTH && item === "L") continue;
    const [low, high, step] = rangeOf(field, item);
    for (let number = low; number <= high; number += step) numbers.add(number);
  }
  return [...numbers].sort((one, other) => one - other);
}

function rangeOf(field: Field, item: string): [low: number, high: number, step: number] {
  const shown = quoted([...item].slice(0, 40).join(""));
  const groups = ITEM.exec(item)?.groups;
  if (groups === undefined) {
    throw new CronFault(`${field.name}: ${shown} is none of *, N, N-M, with an optional /step`);
  }
  const { star, first, last, step: every } = groups;
  const step = every === undefined ? 1 : Number(every.slice(0, 6));
  if (step === 0) throw new CronFault(`${field.name}: the step of ${shown} must be at least 1`);
  if (star !== undefined) return [field.low, field.high, step];
  const low = numberOf(field, first ?? "");
  if (last === undefined) return [low, every === undefined ? low : field.high, step];
  const high = numberOf(field, last);
  if (high < low) throw new CronFault(`${field.name}: the range ${shown} runs backwards; ranges do not wrap around`);
  return [low, high, step];
}

function numberOf({ name, low, high, names }: Field, text: string): number {
  const place = names.indexOf(text.toUpperCase());
  let number = place < 0 ? -1 : low + place;
  if (/^[0-9]/.test(text)) number = text.length <= 9 ? Number(text) : high + 1;
  if (number >= low && number <= high) return number;
  const others = names.length > 0 ? ` or ${names.join("|")}` : "";
  throw new CronFault(`${name}: ${quoted(text.slice(0, 40))} is not ${low}-${high}${others}`);
}
