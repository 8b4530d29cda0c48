/**
 * Notices steps that are executed, stored, and not asked for again: renamed ones, and ids that differ at every call.
 *
 * Code that has not changed asks for all that is stored before it comes to a new step, where it runs in one line. A
 * stored step that it did not ask for by then was renamed, removed, or is asked for later than a step that was put
 * before it. Which of these it is cannot be seen before the run ends, and a step that was renamed has then had its
 * effect twice: so it is told in the log, once a run.
 *
 * Where ids differ at every call, a body runs once more at every call, under a new id, and the run never ends. Whether
 * it is so cannot be seen in one request: a deployment that puts a new step first looks the same. To fail a run, a
 * process compares with what it has answered itself, with the same code, and only a long row of such steps fails the
 * run: code that once took another branch, because it read the clock or a flag, is told so in the log and goes on.
 */

import { NonDeterminismError } from "./errors.js";
import type { Logger } from "./logger.js";
import { shown } from "./shown.js";

/** Steps in a row that may be lost before the run fails. */
export const MOST_IN_A_ROW = 100;

const MOST_RUNS = 4096;
const MOST_NAMED = 5;

/** The step that was answered last for a run, and how many in a row were lost. */
interface Answered {
  stepId: string;
  inARow: number;
}

/** What a process remembers of its latest runs, by workflow and run. */
interface Remembered {
  readonly answered: Map<string, Answered>;
  readonly told: Map<string, true>;
  readonly most: number;
}

/** The steps that an invocation has called so far. */
interface Asked {
  has(stepId: string): boolean;
}

/** What this process has answered last, for the runs that it was called for. */
export class LostSteps {
  readonly #remembered: Remembered;
  readonly #logger: Logger;

  constructor(logger: Logger, mostRuns = MOST_RUNS) {
    this.#logger = logger;
    this.#remembered = { answered: new Map(), told: new Map(), most: mostRuns };
  }

  /** For one invocation of a run. */
  watch(workflow: string, runId: string): StepWatch {
    return new StepWatch(this.#remembered, this.#logger, workflow, runId);
  }
}

/** Watches one invocation. */
export class StepWatch {
  /** Whether step calls were pending side by side: which of them comes first may vary. */
  isConcurrent = false;
  readonly #key: string;
  /** Stored steps that were not asked for; null before they are looked for. */
  #missing: string[] | null = null;

  constructor(
    private readonly remembered: Remembered,
    private readonly logger: Logger,
    private readonly workflow: string,
    private readonly runId: string,
  ) {
    this.#key = JSON.stringify([workflow, runId]);
  }

  /**
   * A step without a result is about to be executed; `asked` are the steps that were called so far, itself among them.
   * What the run is to fail with, if it must.
   */
  executes(stepId: string, asked: Asked): NonDeterminismError | null {
    const { answered } = this.remembered;
    const last = answered.get(this.#key);
    if (last === undefined || !this.#isLost(last, asked) || last.inARow + 1 < MOST_IN_A_ROW) return null;
    answered.delete(this.#key);
    return new NonDeterminismError(last.stepId, stepId, MOST_IN_A_ROW);
  }

  /** A new step is about to be reported, and fewer steps were recalled than are `stored`. */
  reports(stepId: string, stored: Iterable<string>, asked: Asked): void {
    if (this.isConcurrent) return;
    this.#missing = Array.from(this.#missing ?? stored).filter((each) => !asked.has(each));
    if (this.#missing.length > 0) this.#tellMissing(this.#missing, stepId);
  }

  /** The invocation ends with this step. */
  answered(stepId: string, asked: Asked): void {
    const last = this.remembered.answered.get(this.#key) ?? { stepId, inARow: 0 };
    if (asked.has(last.stepId)) last.inARow = 0;
    else if (this.#isLost(last, asked)) {
      last.inARow += 1;
      this.#tell(last, stepId);
    }
    last.stepId = stepId;
    this.#keep(this.remembered.answered, last);
  }

  /** The run is over. */
  ended(): void {
    this.remembered.answered.delete(this.#key);
  }

  #isLost(last: Answered, asked: Asked): boolean {
    return !asked.has(last.stepId) && !this.isConcurrent;
  }

  #keep<T>(runs: Map<string, T>, value: T): void {
    runs.delete(this.#key);
    for (const oldest of runs.keys()) {
      if (runs.size < this.remembered.most) break;
      runs.delete(oldest);
    }
    runs.set(this.#key, value);
  }

  /** Whether nothing has been told of the run yet; from now on, it has. */
  #isToBeTold(): boolean {
    const { told } = this.remembered;
    if (told.has(this.#key)) return false;
    this.#keep(told, true);
    return true;
  }

  #tellMissing(missing: readonly string[], stepId: string): void {
    if (!this.#isToBeTold()) return;
    const more = missing.length - MOST_NAMED;
    const named = missing.slice(0, MOST_NAMED).map((each) => shown(each));
    this.logger.warn(
      `workflow ${this.workflow}, run ${this.runId}: step ${shown(stepId)} was new and was executed, and the code before` +
        ` it did not ask for ${named.join(", ")}${more > 0 ? ` and ${more} more` : ""}, of which a result is stored: a` +
        " step that was renamed has its effect twice. Step ids, and what decides which step comes next, must stay the" +
        " same while runs are active (no harm is done where a step was put before stored ones, or one was removed on" +
        " purpose)",
    );
  }

  #tell(last: Answered, stepId: string): void {
    if (!this.#isToBeTold()) return;
    this.logger.warn(
      `workflow ${this.workflow}, run ${this.runId}: step ${shown(last.stepId)} was executed by the call before and` +
        ` this one did not ask for it, it executed ${shown(stepId)}: step ids, and what decides which step comes next,` +
        ` must be the same at every call (${MOST_IN_A_ROW} such steps in a row fail the run)`,
    );
  }
}
