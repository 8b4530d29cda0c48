/**
 * Expressions over the trigger event and an incoming event (engine section 7): the whole grammar.
 *
 *     or         := and ("||" and)*
 *     and        := comparison ("&&" comparison)*
 *     comparison := unary (("==" | "!=" | ">" | ">=" | "<" | "<=") unary)?
 *     unary      := "!" unary | "(" or ")" | literal | path
 *     path       := ("event" | "async") ("." NAME | "[" STRING "]" | "[" INDEX "]")*
 *     literal    := STRING | NUMBER | "true" | "false" | "null"
 *
 * A parsed expression is a function of the two events. Integers over 2^53 compare as JavaScript holds them.
 */

import { compare, isTrue } from "./json-values.js";
import { ExpressionError, type Token, fault, numberOf, quoted, tokensOf, unquoted } from "./tokens.js";

/** The value for a trigger event and an incoming one. */
export type Expression = (event: unknown, incoming: unknown) => unknown;

type Key = string | number;

const MAX_NESTING = 32;
const FIELDS = ["data", "id", "name", "ts"];
const COMPARISONS = ["==", "!=", ">", ">=", "<", "<="];
const CONSTANTS = new Map<string, unknown>([
  ["true", true],
  ["false", false],
  ["null", null],
]);

/** The function that an expression is. Throws ExpressionError. */
export function parse(text: unknown): Expression {
  const parser = new Parser(tokensOf(text));
  const found = parser.alternatives();
  parser.end("an operator or the end");
  return found;
}

/** The function of an expression where there is no incoming event. Throws ExpressionError. */
export function parseOfEvent(text: unknown): Expression {
  const parser = new Parser(tokensOf(text));
  const found = parser.alternatives();
  parser.end("an operator or the end");
  if (parser.readsIncoming) throw new ExpressionError("may only use event: there is no incoming event here");
  return found;
}

/** `match: "data.order_id"`: both events agree there. Throws ExpressionError. */
export function parseMatch(path: unknown): Expression {
  const parser = new Parser(tokensOf(path));
  const keys = [parser.name("a path like data.order_id"), ...parser.keys()];
  parser.end("'.', '[' or the end");
  if (!FIELDS.includes(String(keys[0]))) {
    throw fault(0, `a match path begins with one of ${FIELDS.join(", ")}, as in data.order_id`);
  }
  return (event, incoming) => compare("==", valueAt(keys, event), valueAt(keys, incoming));
}

/** Whether `match` and `if`, where given, both hold. Throws ExpressionError. */
export function condition(match: unknown, condition_: unknown): Expression {
  const parts: Expression[] = [];
  if (match != null) parts.push(parseMatch(match));
  if (condition_ != null) parts.push(parse(condition_));
  return (event, incoming) => parts.every((part) => isTrue(part(event, incoming)));
}

function valueAt(keys: readonly Key[], root: unknown): unknown {
  let value = root;
  for (const key of keys) {
    if (typeof value !== "object" || value === null || (typeof key === "number") !== Array.isArray(value)) return null;
    value = Object.hasOwn(value, key) ? (value as Record<Key, unknown>)[key] : null;
  }
  return value ?? null;
}

class Parser {
  /** Whether a path begins with `async`. */
  readsIncoming = false;
  #next = 0;
  #depth = 0;

  constructor(private readonly tokens: readonly Token[]) {}

  alternatives(): Expression {
    const operands = [this.#conjunction()];
    while (this.#took("||")) operands.push(this.#conjunction());
    const [first] = operands;
    if (operands.length === 1 && first !== undefined) return first;
    return (event, incoming) => operands.some((operand) => isTrue(operand(event, incoming)));
  }

  keys(): Key[] {
    const keys: Key[] = [];
    for (;;) {
      if (this.#took(".")) keys.push(this.name("a name after '.' (other keys stand in [\"…\"])"));
      else if (this.#took("[")) keys.push(this.#bracketed());
      else return keys;
    }
  }

  name(expected: string): string {
    if (this.#peek.kind !== "name") this.#refuse(expected);
    return this.#advance().text;
  }

  end(expected: string): void {
    if (this.#peek.kind !== "end") this.#refuse(expected);
  }

  #conjunction(): Expression {
    const operands = [this.#comparison()];
    while (this.#took("&&")) operands.push(this.#comparison());
    const [first] = operands;
    if (operands.length === 1 && first !== undefined) return first;
    return (event, incoming) => operands.every((operand) => isTrue(operand(event, incoming)));
  }

  #comparison(): Expression {
    const left = this.#unary();
    if (!this.#isAtComparison()) return left;
    const operator = this.#advance().text;
    const right = this.#unary();
    if (this.#isAtComparison()) this.#refuse("'&&', '||' or the end, for comparisons do not chain");
    return (event, incoming) => compare(operator, left(event, incoming), right(event, incoming));
  }

  #unary(): Expression {
    if (this.#took("!")) {
      const operand = this.#deeper(() => this.#unary());
      return (event, incoming) => !isTrue(operand(event, incoming));
    }
    if (!this.#took("(")) return this.#operand();
    return this.#deeper(() => {
      const inner = this.alternatives();
      if (!this.#took(")")) this.#refuse("an operator or ')'");
      return inner;
    });
  }

  #operand(): Expression {
    const { kind, text } = this.#peek;
    if (kind === "string") return constant(unquoted(this.#advance()));
    if (kind === "number") return constant(numberOf(this.#advance()));
    if (kind !== "name") this.#refuse("a value: a path, a string, a number, true, false or null");
    if (CONSTANTS.has(text)) return constant(CONSTANTS.get(this.#advance().text));
    if (text !== "event" && text !== "async") this.#refuse("event, async, true, false or null");
    this.#advance();
    if (text === "async") this.readsIncoming = true;
    const keys = this.keys();
    return text === "event" ? (event) => valueAt(keys, event) : (_event, incoming) => valueAt(keys, incoming);
  }

  #bracketed(): Key {
    const token = this.#advance();
    const isIndex = token.kind === "number" && /^[0-9]+$/.test(token.text);
    if (token.kind !== "string" && !isIndex) {
      throw fault(token.at, `expected a quoted key or an index from 0, found ${found(token)}`);
    }
    const key = isIndex ? numberOf(token) : unquoted(token);
    if (!this.#took("]")) this.#refuse("']'");
    return key;
  }

  #deeper<T>(read: () => T): T {
    this.#depth += 1;
    if (this.#depth > MAX_NESTING) {
      throw fault(this.tokens[this.#next - 1]?.at ?? 0, `nested deeper than ${MAX_NESTING} levels`);
    }
    const inner = read();
    this.#depth -= 1;
    return inner;
  }

  get #peek(): Token {
    return this.tokens[this.#next] as Token;
  }

  #advance(): Token {
    const token = this.#peek;
    if (token.kind !== "end") this.#next += 1;
    return token;
  }

  #took(mark: string): boolean {
    const { kind, text } = this.#peek;
    if (kind !== "mark" || text !== mark) return false;
    this.#next += 1;
    return true;
  }

  #isAtComparison(): boolean {
    return this.#peek.kind === "mark" && COMPARISONS.includes(this.#peek.text);
  }

  #refuse(expected: string): never {
    throw fault(this.#peek.at, `expected ${expected}, found ${found(this.#peek)}`);
  }
}

function found({ text }: Token): string {
  return text === "" ? "the end" : quoted([...text].slice(0, 40).join(""));
}

function constant(value: unknown): Expression {
  return () => value;
}
