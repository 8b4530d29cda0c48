/** Bodies of requests, taken in no further than the limit. */

import { MAX_BODY_BYTES } from "../protocol.js";
import { BodyTooLarge } from "../refusal.js";

/** Collects the chunks of a body. */
export class BodyCollector {
  readonly #chunks: Uint8Array[] = [];
  #size = 0;

  /** `length` is the Content-Length, if there is one. Throws BodyTooLarge before anything is read. */
  constructor(length: string | null | undefined) {
    this.#check(Number(length ?? 0));
  }

  /** Throws BodyTooLarge once the chunks are more than a body may be. */
  add(chunk: Uint8Array): void {
    this.#size += chunk.length;
    this.#check(this.#size);
    this.#chunks.push(chunk);
  }

  /** All chunks as one. */
  whole(): Uint8Array {
    const [first] = this.#chunks;
    if (this.#chunks.length === 1 && first !== undefined) return first;
    const body = new Uint8Array(this.#size);
    let at = 0;
    for (const chunk of this.#chunks) {
      body.set(chunk, at);
      at += chunk.length;
    }
    return body;
  }

  #check(bytes: number): void {
    if (bytes > MAX_BODY_BYTES) {
      throw new BodyTooLarge(`the body has ${bytes} bytes or more, the limit is ${MAX_BODY_BYTES}`);
    }
  }
}
