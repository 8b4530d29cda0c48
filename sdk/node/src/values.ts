/** Values through JSON: what a step returns is what every later invocation reads (protocol section 7). */

import { SerializationError } from "./errors.js";
import { typeName } from "./shown.js";

const DEEPEST = 500;

/**
 * The JSON text of `value`, by the rules of JSON.stringify where those lose nothing: undefined is null, and as a
 * property is left out; what has a `toJSON`, such as a Date, is what that returns.
 *
 * Throws SerializationError, naming place and type, for everything else that JSON cannot hold: NaN, infinities,
 * bigints, functions, symbols, and objects of classes (Map, bytes, Error), which JSON.stringify would silently change.
 * `what` is what the message calls the value.
 */
export function encode(value: unknown, what = "value"): string {
  return text(value, what, [], "");
}

function text(value: unknown, path: string, above: readonly object[], key: string): string {
  switch (typeof value) {
    case "string":
    case "boolean":
      return JSON.stringify(value);
    case "undefined":
      return "null";
    case "number":
      if (!Number.isFinite(value)) throw new SerializationError(`${path} is ${value}: JSON has no NaN and no infinity`);
      return JSON.stringify(value);
    case "object":
      return value === null ? "null" : object(value, path, above, key);
    case "bigint":
      throw cannotHold(path, "bigint", ": make it text");
    default:
      throw cannotHold(path, typeof value);
  }
}

function object(value: object, path: string, above: readonly object[], key: string): string {
  if (above.includes(value)) throw new SerializationError(`${path} contains itself`);
  if (above.length >= DEEPEST) throw new SerializationError(`${path} is nested too deeply`);
  const inside = [...above, value];
  const toJson: unknown = (value as { toJSON?: unknown }).toJSON;
  if (typeof toJson === "function" && !ArrayBuffer.isView(value)) {
    if (value instanceof Date && Number.isNaN(value.getTime())) {
      throw new SerializationError(`${path} is an invalid Date`);
    }
    return text(toJson.call(value, key), path, inside, key);
  }
  if (Array.isArray(value)) {
    return `[${Array.from(value, (item, index) => text(item, `${path}[${index}]`, inside, String(index))).join(",")}]`;
  }
  if (!isPlain(value)) throw cannotHold(path, typeName(value), hint(value));
  const members = [];
  for (const [name, item] of Object.entries(value)) {
    if (item === undefined) continue;
    members.push(`${JSON.stringify(name)}:${text(item, `${path}[${JSON.stringify(name)}]`, inside, name)}`);
  }
  return `{${members.join(",")}}`;
}

/** Whether an object is a literal, also one of another realm. */
function isPlain(value: object): boolean {
  const prototype: unknown = Object.getPrototypeOf(value);
  return prototype === null || (Object.getPrototypeOf(prototype) === null && !(Symbol.toStringTag in value));
}

function hint(value: object): string {
  const isBytes = ArrayBuffer.isView(value) || value instanceof ArrayBuffer;
  return isBytes ? ": encode it as text, for example base64" : ": make it a plain object";
}

function cannotHold(path: string, type: string, advice = ""): SerializationError {
  return new SerializationError(`${path} is of the type ${type}, which JSON cannot hold${advice}`);
}
