/** What JSON values are to conditions and keys (engine section 7): truth, equality, order, key. */

/** A value as a condition: null, false, 0 and "" do not hold; everything else does, empty lists and objects too. */
export function isTrue(value: unknown): boolean {
  return Boolean(value);
}

/** Strict and deep equality. */
export function same(left: unknown, right: unknown): boolean {
  if (Array.isArray(left) || Array.isArray(right)) {
    if (!Array.isArray(left) || !Array.isArray(right) || left.length !== right.length) return false;
    return left.every((item, index) => same(item, right[index]));
  }
  if (isObject(left) && isObject(right)) {
    const keys = Object.keys(left);
    if (keys.length !== Object.keys(right).length) return false;
    return keys.every((key) => Object.hasOwn(right, key) && same(left[key], right[key]));
  }
  return left === right;
}

/** A comparison; the orders are of number with number and text with text (by code point), else false. */
export function compare(operator: string, left: unknown, right: unknown): boolean {
  if (operator === "==" || operator === "!=") return same(left, right) === (operator === "==");
  let order: number;
  if (typeof left === "number" && typeof right === "number") order = left - right;
  else if (typeof left === "string" && typeof right === "string") order = orderOfTexts(left, right);
  else return false;
  if (operator === ">") return order > 0;
  if (operator === ">=") return order >= 0;
  return operator === "<" ? order < 0 : order <= 0;
}

/** A value as a key, equal exactly for equal values; null for null. */
export function keyOf(value: unknown): string | null {
  return value == null ? null : JSON.stringify(canonical(value));
}

function canonical(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(canonical);
  if (!isObject(value)) return Object.is(value, -0) ? 0 : value;
  return Object.fromEntries(
    Object.keys(value)
      .sort()
      .map((key) => [key, canonical(value[key])]),
  );
}

/** JavaScript orders by code units, which is another order where surrogates are. */
function orderOfTexts(left: string, right: string): number {
  const [one, other] = [[...left], [...right]];
  for (let index = 0; index < Math.min(one.length, other.length); index += 1) {
    const order = (one[index]?.codePointAt(0) ?? 0) - (other[index]?.codePointAt(0) ?? 0);
    if (order !== 0) return order;
  }
  return one.length - other.length;
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}
