/** Virtual time: what is due when. */

export type Action = () => unknown;

interface Timer {
  readonly at: number;
  readonly rank: number;
  readonly action: Action;
}

/** The clock, in unix milliseconds, and what it will do. Of two actions at one time the first set is the first. */
export class Timers {
  readonly #timers: Timer[] = [];

  constructor(public nowMs: number) {}

  /** Does it at a time, at once for one that has passed; `isFirst`: before what is due then. */
  at(ms: number, action: Action, { isFirst = false } = {}): void {
    const timer = { at: ms, rank: isFirst ? 0 : 1, action };
    let [low, high] = [0, this.#timers.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      const found = this.#timers[middle] as Timer;
      if (found.at < ms || (found.at === ms && found.rank <= timer.rank)) low = middle + 1;
      else high = middle;
    }
    this.#timers.splice(low, 0, timer);
  }

  /** Sets the clock to the next action that is due by then, and returns it; undefined without one. */
  next(untilMs: number): Action | undefined {
    const [first] = this.#timers;
    if (first === undefined || first.at > untilMs) return undefined;
    this.#timers.shift();
    this.nowMs = Math.max(this.nowMs, first.at);
    return first.action;
  }
}
