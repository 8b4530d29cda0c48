/** Where the SDK and `ctx.logger` write. */

/** The part of `console` that is used; pino and others have it too. */
export interface Logger {
  debug(...data: unknown[]): void;
  info(...data: unknown[]): void;
  warn(...data: unknown[]): void;
  error(...data: unknown[]): void;
}

type Level = keyof Logger;

/** How far the code of an invocation has come. */
interface Progress {
  readonly isOver: boolean;
  readonly isReplaying: boolean;
  readonly recalled: number;
}

/**
 * `ctx.logger`: each line of the code between steps once, not on every replay.
 *
 * A line is new if no memoized step is passed after it. Whether that is so can be unknown when it is logged (the code
 * may have changed and never reach the steps that are left), so such lines are held until the next step call.
 */
export class ReplayLogger implements Logger {
  #held: { recalled: number; level: Level; data: unknown[] }[] = [];

  constructor(
    private readonly inner: Logger,
    private readonly progress: Progress,
  ) {}

  debug(...data: unknown[]): void {
    this.#log("debug", data);
  }

  info(...data: unknown[]): void {
    this.#log("info", data);
  }

  warn(...data: unknown[]): void {
    this.#log("warn", data);
  }

  error(...data: unknown[]): void {
    this.#log("error", data);
  }

  /** Emits the held lines that turned out to be new; called at the end of the invocation. */
  flush(): void {
    const held = this.#held;
    this.#held = [];
    for (const { recalled, level, data } of held) {
      if (recalled === this.progress.recalled) this.inner[level](...data);
    }
  }

  /** Passes a line on, holds it, or drops it once the op is known: what comes then does not count. */
  #log(level: Level, data: unknown[]): void {
    if (this.progress.isOver) return;
    if (this.progress.isReplaying) {
      this.#held.push({ recalled: this.progress.recalled, level, data });
      return;
    }
    this.flush();
    this.inner[level](...data);
  }
}
