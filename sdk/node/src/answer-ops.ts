/** The ops of one answer, and the room that there is for them (protocol section 4). */

/** Once the ops of an answer are over this, it ends. */
const MAX_OPS_BYTES = 4 * 1024 * 1024;
/** What all ops of an answer may come to: the engine takes 8 MiB, and something is around them. */
const MAX_ANSWER_BYTES = 8 * 1024 * 1024 - 1024;
/** An op over this ends its answer: where the engine's limits refuse the result, the code must not have gone on. */
const BIG_OP_BYTES = 64 * 1024;

/** What an answer may hold: `maxOps`, of steps that begin before `until` (of `performance.now()`), if there is one. */
export interface Room {
  readonly maxOps: number;
  readonly until: number | null;
}

/** The room of an answer where the engine says nothing of it. */
export const ONE_OP: Room = { maxOps: 1, until: null };

/** The ops of an answer that is in the making, as JSON. */
export class AnswerOps {
  readonly #room: Room;
  readonly #texts: string[] = [];
  #bytes = 0;
  #hasBigOp = false;

  constructor(room: Room) {
    this.#room = room;
  }

  get isEmpty(): boolean {
    return this.#texts.length === 0;
  }

  /** Whether no step may begin any more. */
  get isLate(): boolean {
    return this.#room.until !== null && performance.now() >= this.#room.until;
  }

  /** Whether another op may follow the next one. */
  get takesMore(): boolean {
    return this.#texts.length + 1 < this.#room.maxOps;
  }

  /** Whether no op may follow. */
  get isFull(): boolean {
    return this.#texts.length >= this.#room.maxOps || this.#bytes > MAX_OPS_BYTES || this.#hasBigOp;
  }

  /** The op joins the answer; false, and it does not, where the answer would be too large with it. */
  add(text: string): boolean {
    const size = new TextEncoder().encode(text).length;
    if (!this.isEmpty && this.#bytes + size > MAX_ANSWER_BYTES) return false;
    this.#texts.push(text);
    this.#bytes += size;
    this.#hasBigOp ||= size > BIG_OP_BYTES;
    return true;
  }

  /** All ops, separated by commas. */
  toString(): string {
    return this.#texts.join(",");
  }
}
