/** Where two values differ. */

import { same } from "../rules/json-values.js";
import { shown } from "../shown.js";

/** The first place in which a JSON value differs from what it is without a crash, in words; null for the same. */
export function firstDifference(found: unknown, expected: unknown, path: string): string | null {
  if (same(found, expected)) return null;
  if (Array.isArray(found) && Array.isArray(expected)) {
    for (const [index, item] of found.entries()) {
      if (index < expected.length && !same(item, expected[index])) {
        return firstDifference(item, expected[index], `${path}[${index}]`);
      }
    }
    return `${path} has ${found.length} entries, and ${expected.length} without`;
  }
  if (isObject(found) && isObject(expected)) {
    for (const key of new Set([...Object.keys(expected), ...Object.keys(found)])) {
      const [left, right] = [found, expected].map((value) => (Object.hasOwn(value, key) ? value[key] : undefined));
      if (!same(left, right)) return firstDifference(left, right, `${path}${member(key)}`);
    }
  }
  return `${path} is ${shown(found)}, and ${shown(expected)} without`;
}

function member(key: string): string {
  return /^[A-Za-z_$][\w$]*$/.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
