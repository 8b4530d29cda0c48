/** The execution of a step's function, and what becomes of its result. */

import type { Room } from "./answer-ops.js";
import { asyncContext } from "./async-context.js";
import { type StepCall, inputText } from "./calls.js";
import { failureOf, tracebackOf } from "./failures.js";
import type { StepWatch } from "./lost-steps.js";
import type { Middleware, StepInfo, StepOutcome } from "./middleware.js";
import type { Pipeline } from "./pipeline.js";
import type { StoredStep } from "./protocol.js";
import { shown } from "./shown.js";
import { encode } from "./values.js";

/** The step whose function is being executed in this context: how a nested call is told from a parallel one. */
const executing = asyncContext<{ replay: object; stepId: string }>();

/** The step of this invocation whose function the caller is part of; null outside of one. */
export function stepAround(replay: object): string | null {
  const outer = executing.getStore();
  return outer?.replay === replay ? outer.stepId : null;
}

/** The error of a failed attempt; `stepId` is null when the workflow function failed. */
export interface FailedAttempt {
  readonly stepId: string | null;
  readonly name: string;
  readonly message: string;
  /** The stack; null where the error was thrown on purpose, or tells all itself. */
  readonly traceback: string | null;
}

/** An op as JSON. `output` is what the step has come to, null for one that the answer ends with. */
export interface Made {
  readonly text: string;
  readonly output: string | null;
  readonly failure: FailedAttempt | null;
}

/** Who looks on an invocation, and may have it go otherwise: the kit for tests. */
export interface Probe {
  /** What is executed for a step; `call.body` is the function that it names. */
  body(stepId: string, call: StepCall): () => unknown;
}

/** What an invocation is made of. `run` is what steps are told of it; `attempt` counts for the first one. */
export interface InvocationParts {
  readonly run: { readonly workflow: string; readonly runId: string; readonly attempt: number };
  readonly memo: ReadonlyMap<string, StoredStep>;
  readonly watch: StepWatch;
  readonly pipeline: Pipeline;
  readonly captureInput: boolean;
  readonly room?: Room;
  /** Whether nothing is executed: the invocation ends with what would be done at the first step without a result. */
  readonly isDry?: boolean;
  readonly probe?: Probe | undefined;
}

/** A step that is executed, in the invocation `replay`. */
interface Executed {
  readonly replay: object;
  readonly call: StepCall;
  readonly stepId: string;
  readonly body: () => unknown;
  readonly attempt: number;
}

/** Executes the function of a step now, once. Never rejects: what the function throws is the op's. */
export async function execute(parts: InvocationParts, step: Executed): Promise<Made> {
  const { replay, call, stepId, body } = step;
  const named = { id: stepId, name: call.userId, ...call.fields };
  const { pipeline, captureInput } = parts;
  const hooks = pipeline.hears("step") ? new StepHooks(pipeline, told(parts, step)) : null;
  let started = performance.now();
  let input: string | null = null;
  let made: Made;
  let outcome: StepOutcome;
  try {
    if (captureInput) input = pipeline.encodesNothing ? inputText(call.args) : await encodedInput(call, parts.pipeline);
    if (hooks !== null) await hooks.starts();
    started = performance.now();
    const value: unknown = await executing.run({ replay, stepId }, () => awaited(body()));
    const took = since(started);
    const what = `the return value of step ${shown(stepId)}`;
    let output = encode(value, what);
    if (!pipeline.encodesNothing) output = encode(await pipeline.encode(JSON.parse(output), "step"), what);
    const text = opText({ op: "step_completed", ...named, duration_ms: took }, { input, output });
    made = { text, output, failure: null };
    outcome = { status: "completed", output: value };
  } catch (error) {
    const failure = failureOf(error);
    const text = opText({ op: "step_failed", ...named, duration_ms: since(started), ...failure }, { input });
    made = { text, output: null, failure: { stepId, ...failure.error, traceback: tracebackOf(error) } };
    outcome = { status: "failed", error };
  }
  await hooks?.ends(outcome);
  return made;
}

/** Awaits a step call that a function has returned within the context of that function, where it is a nested one. */
function awaited(returned: unknown): unknown {
  const { then } = (returned ?? {}) as { then?: unknown };
  if (typeof then !== "function" || returned instanceof Promise) return returned;
  return new Promise((resolve, reject) => then.call(returned, resolve, reject));
}

/** An op as JSON; `texts` are fields that are JSON already, null ones are left out. */
export function opText(fields: object, texts: Record<string, string | null> = {}): string {
  const spliced = Object.entries(texts).flatMap(([name, text]) => (text === null ? [] : [`,"${name}":${text}`]));
  return `${encode(fields, "the step's arguments").slice(0, -1)}${spliced.join("")}}`;
}

/** The arguments as they are stored; none where they cannot be encoded: they are not needed. */
async function encodedInput(call: StepCall, pipeline: Pipeline): Promise<string | null> {
  const plain = inputText(call.args);
  if (plain === null) return null;
  try {
    return inputText(await pipeline.encode(JSON.parse(plain), "step"));
  } catch {
    return null;
  }
}

function told({ run: { workflow, runId } }: InvocationParts, { call, stepId, attempt }: Executed): StepInfo {
  return { id: stepId, name: call.userId, workflow, runId, attempt, args: call.args ?? [] };
}

/** What middleware hears of one execution. */
class StepHooks {
  readonly #begun: Middleware[] = [];

  constructor(
    private readonly pipeline: Pipeline,
    private readonly step: StepInfo,
  ) {}

  starts(): Promise<void> {
    return this.pipeline.starts("stepStarts", this.#begun, this.step);
  }

  ends(outcome: StepOutcome): Promise<void> {
    return this.pipeline.ends("stepEnds", this.#begun, this.step, outcome);
  }
}

function since(started: number): number {
  return Math.round(performance.now() - started);
}
