/** How messages show a value that they did not expect: short, on one line, whatever it is. */
export function shown(value: unknown, most = 100): string {
  const text = written(value);
  return text.length > most ? `${text.slice(0, most)}…` : text;
}

/** A fault that names the value too. */
export function faulty(value: unknown, fault: string): string {
  if (/^['"]/.test(fault)) return fault;
  return fault.includes(", ") ? `${fault} (${shown(value, 50)})` : `${fault}, not ${shown(value, 50)}`;
}

/** The name of the type of a value: `null`, `string`, `Date`, `Invoice`. */
export function typeName(value: unknown): string {
  if (value === null || typeof value !== "object") return value === null ? "null" : typeof value;
  const prototype: unknown = Object.getPrototypeOf(value);
  const constructor: unknown = prototype === null ? null : (prototype as { constructor?: unknown }).constructor;
  return typeof constructor === "function" && constructor.name ? constructor.name : "object";
}

function written(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "function" || typeof value === "symbol") return typeof value;
  if (typeof value !== "object" || value === null) return String(value);
  try {
    return JSON.stringify(value) ?? typeName(value);
  } catch {
    return typeName(value);
  }
}
