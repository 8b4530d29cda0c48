/** The words of an expression (engine section 7), each with its place. */

const MAX_LENGTH = 1000;
const PARTS = [
  /(?<blanks>[ \t\n\r]+)/,
  /(?<name>[A-Za-z_][A-Za-z0-9_]*)/,
  /(?<number>-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![A-Za-z0-9_]))/,
  /(?<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')/,
  /(?<mark>==(?!=)|!=(?!=)|>=|<=|&&|\|\||[<>!().[\]])/,
];
const TOKEN = new RegExp(PARTS.map(({ source }) => source).join("|"), "suy");
const ESCAPE = /\\(?:u([0-9a-fA-F]{4})|(.))/gsu;
const ESCAPES = "\\\\ \\' \\\" \\n \\t \\r \\uXXXX";
const ESCAPED: Readonly<Record<string, string>> = {
  "\\": "\\",
  "'": "'",
  '"': '"',
  n: "\n",
  t: "\t",
  r: "\r",
};

/** An expression that the engine refuses. */
export class ExpressionError extends Error {
  override name = "ExpressionError";
}

export type TokenKind = "name" | "number" | "string" | "mark" | "end";

/** A word. `at` counts characters (code points) from 0. */
export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  readonly at: number;
}

/** The words of a text, and an end. Throws ExpressionError. */
export function tokensOf(text: unknown): Token[] {
  if (typeof text !== "string") throw fault(0, "an expression is a string");
  const { length } = [...text];
  if (length > MAX_LENGTH) {
    throw fault(MAX_LENGTH, `an expression has at most ${MAX_LENGTH} characters, this has ${length}`);
  }
  if (text.includes("\0") || !text.isWellFormed()) {
    throw fault(0, "an expression holds no NUL and no lone surrogate: write it escaped, in a string");
  }
  const tokens: Token[] = [];
  const pattern = new RegExp(TOKEN);
  let at = 0;
  while (pattern.lastIndex < text.length) {
    const start = pattern.lastIndex;
    const found = pattern.exec(text);
    if (found === null) throw unexpected(text.slice(start), at);
    const kind = Object.entries(found.groups ?? {}).find(([, group]) => group !== undefined)?.[0] ?? "";
    if (kind !== "blanks") tokens.push({ kind: kind as TokenKind, text: found[0], at });
    at += [...found[0]].length;
  }
  return [...tokens, { kind: "end", text: "", at }];
}

/** Why no word begins with this text. */
function unexpected(text: string, at: number): ExpressionError {
  const [character = ""] = text;
  if ("'\"".includes(character)) return fault(at, `the string that begins here has no closing ${character}`);
  if ("+-*/%".includes(character)) {
    return fault(at, `unexpected ${character}: there is no arithmetic, and other keys stand in ["…"]`);
  }
  if (/^[0-9]/.test(character)) return fault(at, "expected a number as JSON writes it");
  const strict = /^[=!]==/.exec(text)?.[0];
  if (strict !== undefined) {
    return fault(at, `${strict} is no operator, comparisons are strict: use ${strict.slice(0, 2)}`);
  }
  if ("=&|".includes(character)) return fault(at, `${character} is no operator, expected ${character.repeat(2)}`);
  return fault(at, `unexpected ${quoted(character)}`);
}

/** The text that a string stands for. Throws ExpressionError. */
export function unquoted({ text, at }: Token): string {
  const inner = text.slice(1, -1);
  if ([...inner].some((character) => character < " ")) throw fault(at, "a string holds no raw control character: write it escaped");
  return inner.replace(ESCAPE, (_whole, code: string | undefined, one: string | undefined, place: number) => {
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16));
    const plain = ESCAPED[one ?? ""];
    if (plain === undefined) throw fault(at + 1 + [...inner.slice(0, place)].length, `unknown escape, allowed are ${ESCAPES}`);
    return plain;
  });
}

/** The number that a word is. Throws ExpressionError for one with a fraction or an exponent that is out of range. */
export function numberOf({ text, at }: Token): number {
  const number = Number(text);
  if (!Number.isFinite(number) && !/^-?[0-9]+$/.test(text)) {
    throw fault(at, `the number ${text.slice(0, 40)} is out of range`);
  }
  return number;
}

/** A text as the engine quotes it in messages. */
export function quoted(text: string): string {
  const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
  const inner = [...text].map((character) => {
    if (character === quote || character === "\\") return `\\${character}`;
    return character >= " " && character <= "~" ? character : escaped(character);
  });
  return quote + inner.join("") + quote;
}

function escaped(character: string): string {
  const code = character.codePointAt(0) ?? 0;
  const short = { 9: "\\t", 10: "\\n", 13: "\\r" }[code];
  const hex = code.toString(16);
  return (
    short ??
    (code < 256
      ? `\\x${hex.padStart(2, "0")}`
      : code < 65_536
        ? `\\u${hex.padStart(4, "0")}`
        : `\\U${hex.padStart(8, "0")}`)
  );
}

/** An error at a character. */
export function fault(at: number, message: string): ExpressionError {
  return new ExpressionError(`at character ${at + 1}: ${message}`);
}
