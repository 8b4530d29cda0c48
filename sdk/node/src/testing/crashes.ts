/** Crashes at every point of a scenario, one after the other: what comes of it must stay the same. */

import type { EventMap } from "../event.js";
import { type Members, refuseUnknown } from "../known-options.js";
import { firstDifference } from "./difference.js";
import { UnusedError } from "./faults.js";
import { type App, TestEngine, type TestEngineOptions } from "./engine.js";
import type { StoredRun, StoredStep, TestRun } from "./stored.js";

/** A crash has changed what comes of a scenario, or has executed a step again that had its result. */
export class CrashError extends Error {
  override name = "CrashError";
}

export interface CrashOptions extends Pick<TestEngineOptions, "faults" | "stubs" | "begins"> {
  /**
   * What must be equal of each run, whatever crashed; its status, output and error, and the statuses and outputs of its
   * steps by default. Times differ: by the backoff of the attempt that was lost.
   */
  same?: (run: TestRun) => unknown;
}

const CRASH = Object.keys({ same: true, faults: true, stubs: true, begins: true } satisfies Members<CrashOptions>);

/**
 * Plays a scenario without a crash, and then with one after each op: once where its answer is lost, so that the step is
 * executed again, and once where it has been stored. Resolves with how many times it was played with a crash.
 *
 * A workflow with `retries: 0` has no attempt for the one that is lost, and fails. Where `app` makes a registry (a
 * function), the process that comes after the crash has a new one. Rejects with CrashError, naming the op and
 * the first difference.
 */
export async function everyCrash<Declares extends EventMap = any>(
  app: App<Declares>,
  scenario: (engine: TestEngine<Declares>) => unknown,
  options: CrashOptions = {},
): Promise<number> {
  refuseUnknown(options, CRASH);
  const { same: shown = outcome, ...ofEngine } = options;
  const clean = new TestEngine(app, ofEngine);
  await scenario(clean);
  clean.check();
  const expected = plain(clean.runs.map(shown));
  for (let op = 1; op <= clean.ops; op += 1) {
    for (const [where, crash] of [
      ["lost", { crashAfter: op }],
      ["stored", { storedCrashAfter: op }],
    ] as const) {
      const engine = new TestEngine(app, { ...ofEngine, ...crash });
      let unused: UnusedError | null = null;
      try {
        await scenario(engine);
      } catch (error) {
        // Where a run has gone another way, that is what there is to tell.
        if (!(error instanceof UnusedError)) throw error;
        unused = error;
      }
      const place = `with a crash after op ${op}, its answer ${where}`;
      const difference = firstDifference(plain(engine.runs.map(shown)), expected, "runs");
      if (difference !== null) {
        throw new CrashError(
          `${place}, ${difference}\n\nWith the crash:\n${told(engine)}\n\nWithout:\n${told(clean)}`,
        );
      }
      if (unused !== null) throw unused;
      for (const run of engine.runs) checkExecutions(run as StoredRun, place);
    }
  }
  return 2 * clean.ops;
}

function outcome(run: TestRun): unknown {
  const { workflow, status, output, error, steps } = run;
  const failure = error === null ? null : [error.name, error.message];
  return {
    workflow,
    status,
    output,
    failure,
    steps: Object.fromEntries(
      [...steps.values()].map((step) => [step.id, { status: step.status, output: timeless(step) }]),
    ),
    order: [...steps.keys()],
  };
}

/** The output of a step; of an event that it has waited for, without the time. */
function timeless({ kind, output }: Readonly<StoredStep>): unknown {
  return kind === "wait_for_event" && output !== null ? { ...(output as object), ts: null } : output;
}

function checkExecutions(run: StoredRun, place: string): void {
  for (const [step, times] of run.executed) {
    const stored = run.steps.get(step)?.attempts.length ?? 0;
    const lost = run.lost.get(step) ?? 0;
    if (times === stored + lost) continue;
    throw new CrashError(
      `${place}, step ${JSON.stringify(step)} was executed ${times} times: ${stored} of its attempts are stored, and` +
        ` ${lost} were lost`,
    );
  }
}

/** As it is compared: through JSON, so that what is left out and what is undefined are one. */
function plain(value: unknown): unknown {
  return JSON.parse(JSON.stringify(value));
}

function told(engine: TestEngine): string {
  return engine.runs
    .map((run) => `${run.workflow}: ${run.status}, ${JSON.stringify(run.output)}\n${run.timeline}`)
    .join("\n");
}
