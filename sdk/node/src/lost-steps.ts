/**
 * Notices step ids that differ at every call: steps that are executed, stored, and never asked for again.
 *
 * Code that is deterministic asks for a step that it has executed before it executes a new one: the next call comes
 * past it again. Where it does not, its body runs once more at every call, under a new id, and the run never ends.
 * Whether it is so cannot be seen in one request: a deployment that puts a new step first looks the same. So a process
 * compares with what it has answered itself, with the same code, and only a long row of such steps fails the run: code
 * that once took another branch, because it read the clock or a flag, is told so in the log and goes on.
 */

import { NonDeterminismError } from "./errors.js";
import type { Logger } from "./logger.js";
import { shown } from "./shown.js";

/** Steps in a row that may be lost before the run fails. */
export const MOST_IN_A_ROW = 100;

const MOST_RUNS = 4096;

/** The step that was answered last for a run, and how many in a row were lost. */
interface Answered {
  stepId: string;
  inARow: number;
  isTold: boolean;
}

/** The steps that an invocation has called so far. */
interface Asked {
  has(stepId: string): boolean;
}

/** What this process has answered last, for the runs that it was called for. */
export class LostSteps {
  readonly #runs = new Map<string, Answered>();
  readonly #logger: Logger;
  readonly #mostRuns: number;

  constructor(logger: Logger, mostRuns = MOST_RUNS) {
    this.#logger = logger;
    this.#mostRuns = mostRuns;
  }

  /** For one invocation of a run. */
  watch(workflow: string, runId: string): StepWatch {
    return new StepWatch(this.#runs, this.#mostRuns, this.#logger, workflow, runId);
  }
}

/** Watches one invocation. */
export class StepWatch {
  /** Whether step calls were pending side by side: which of them comes first may vary. */
  isConcurrent = false;
  readonly #key: string;

  constructor(
    private readonly runs: Map<string, Answered>,
    private readonly mostRuns: number,
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
    const last = this.runs.get(this.#key);
    if (last === undefined || !this.#isLost(last, asked) || last.inARow + 1 < MOST_IN_A_ROW) return null;
    this.runs.delete(this.#key);
    return new NonDeterminismError(last.stepId, stepId, MOST_IN_A_ROW);
  }

  /** The invocation ends with this step. */
  answered(stepId: string, asked: Asked): void {
    const last = this.runs.get(this.#key) ?? { stepId, inARow: 0, isTold: false };
    if (asked.has(last.stepId)) last.inARow = 0;
    else if (this.#isLost(last, asked)) {
      last.inARow += 1;
      this.#tell(last, stepId);
    }
    last.stepId = stepId;
    this.#keep(last);
  }

  /** The run is over. */
  ended(): void {
    this.runs.delete(this.#key);
  }

  #isLost(last: Answered, asked: Asked): boolean {
    return !asked.has(last.stepId) && !this.isConcurrent;
  }

  #keep(last: Answered): void {
    this.runs.delete(this.#key);
    for (const oldest of this.runs.keys()) {
      if (this.runs.size < this.mostRuns) break;
      this.runs.delete(oldest);
    }
    this.runs.set(this.#key, last);
  }

  #tell(last: Answered, stepId: string): void {
    if (last.isTold) return;
    last.isTold = true;
    this.logger.warn(
      `workflow ${this.workflow}, run ${this.runId}: step ${shown(last.stepId)} was executed by the call before and` +
        ` this one did not ask for it, it executed ${shown(stepId)}: step ids, and what decides which step comes next,` +
        ` must be the same at every call (${MOST_IN_A_ROW} such steps in a row fail the run)`,
    );
  }
}
