/** Tells code that goes on at once from code that has waited for something. */

/** Promise callbacks in a row that code may need from one step call to the next. */
const MOST_CALLBACKS = 100;

/**
 * Whether the promise callbacks that followed a moment are over, and with them everything that follows from it alone.
 *
 * What comes later was waited for: it came when a timer or a socket said so, which may be another moment the next time.
 */
export class Drain {
  #round = 0;
  #isOver = false;
  #afterwards: (() => void) | null = null;

  get isOver(): boolean {
    return this.#isOver;
  }

  /** This is the moment. */
  begin(): void {
    this.#round += 1;
    this.#isOver = false;
    const round = this.#round;
    let left = MOST_CALLBACKS;
    const count = (): void => {
      if (round !== this.#round) return;
      left -= 1;
      if (left === 0) this.#end();
      else queueMicrotask(count);
    };
    queueMicrotask(count);
  }

  /** It is over already: something else has taken its time. */
  stop(): void {
    this.#round += 1;
    this.#end();
  }

  /** What is to be done when it is over; the last that was said. */
  afterwards(act: () => void): void {
    this.#afterwards = act;
  }

  #end(): void {
    const act = this.#afterwards;
    this.#isOver = true;
    this.#afterwards = null;
    act?.();
  }
}
