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

/** A word. `at` counts characters from 0. */
export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  readonly at: number;
}

/** The words of a text, and an end. Throws ExpressionError. */
export function tokensOf(text: unknown): Token[] {
  if (typeof text !== "string") throw fault(0, "an expression is a string");
  if ([...text].length > MAX_LENGTH) throw fault(MAX_LENGTH, `an expression has at most ${MAX_LENGTH} characters`);
  if (text.includes("\0") || !text.isWellFormed()) {
    throw fault(0, "an expression holds no NUL and no lone surrogate: write it escaped, in a string");
  }
  const tokens: Token[] = [];
  const pattern = new RegExp(TOKEN);
  while (pattern.lastIndex < text.length) {
    const at = pattern.lastIndex;
    const found = pattern.exec(text);
    if (found === null) throw fault(at, `unexpected ${quoted(String.fromCodePoint(text.codePointAt(at) ?? 0))}`);
    const kind = Object.entries(found.groups ?? {}).find(([, group]) => group !== undefined)?.[0] ?? "";
    if (kind !== "blanks") tokens.push({ kind: kind as TokenKind, text: found[0], at });
  }
  return [...tokens, { kind: "end", text: "", at: text.length }];
}

/** The text that a string stands for. Throws ExpressionError. */
export function unquoted({ text, at }: Token): string {
  const inner = text.slice(1, -1);
  if ([...inner].some((character) => character < " ")) throw fault(at, "a string holds no raw control character");
  return inner.replace(ESCAPE, (_whole, code: string | undefined, one: string | undefined) => {
    if (code !== undefined) return String.fromCharCode(Number.parseInt(code, 16));
    const plain = ESCAPED[one ?? ""];
    if (plain === undefined) throw fault(at, `unknown escape \\${one}`);
    return plain;
  });
}

/** The number that a word is. Throws ExpressionError for one that is out of range. */
export function numberOf({ text, at }: Token): number {
  const number = Number(text);
  if (!Number.isFinite(number)) throw fault(at, "the number is out of range");
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
