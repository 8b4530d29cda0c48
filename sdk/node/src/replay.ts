/**
 * The replay core: one invocation of a workflow (protocol section 7).
 *
 * A step call gets its id when it is made and is performed when it is awaited: the stored result of its step, or, as
 * the first one without, the end of the invocation. From then on every step call waits for ever: no code of the
 * workflow goes on, so none can swallow the end, and what it holds is collected with it.
 */

import { AsyncLocalStorage } from "node:async_hooks";
import { type StepCall, inputText } from "./calls.js";
import { InvokeError, NestedStepError, StepError, StepNotAwaitedError, UnknownStepStatusError } from "./errors.js";
import { failureOf } from "./failures.js";
import type { StepWatch } from "./lost-steps.js";
import type { StoredStep } from "./protocol.js";
import { shown } from "./shown.js";
import { StepIds } from "./step-ids.js";
import { encode } from "./values.js";

/** The step whose body is being executed in this context: how a nested call is told from a parallel one. */
const executing = new AsyncLocalStorage<{ replay: Replay; stepId: string }>();

/** The error of a failed attempt, without its stack; `stepId` is null when the workflow function failed. */
export interface FailedAttempt {
  readonly stepId: string | null;
  readonly name: string;
  readonly message: string;
}

/** What an invocation is answered with: an op as JSON, and what failed if it says that something did. */
export interface Report {
  readonly text: string;
  readonly failure: FailedAttempt | null;
}

/** The state of one invocation: ids given, results recalled, and the op that ends it. */
export class Replay {
  /** Resolves with the op to answer; what is recorded first stays. */
  readonly ended: Promise<Report>;
  /** How many memoized steps the code has passed. */
  recalled = 0;
  #report: Report | null = null;
  #owner: string | null = null;
  #end!: (report: Report) => void;
  readonly #ids = new StepIds();
  readonly #notAwaited = new Set<string>();
  #pending = 0;

  constructor(
    private readonly memo: ReadonlyMap<string, StoredStep>,
    private readonly watch: StepWatch,
    private readonly captureInput: boolean,
  ) {
    this.ended = new Promise((resolve) => {
      this.#end = resolve;
    });
  }

  /** Whether nothing that user code still does counts. */
  get isOver(): boolean {
    return this.#report !== null;
  }

  /** Whether the code running now has run in an earlier invocation, as far as the memoized steps tell. */
  get isReplaying(): boolean {
    return this.#owner === null && this.recalled < this.memo.size;
  }

  /** The step id of a call, in call order; null for one that waits for ever. Refuses a call from inside a body. */
  begin(call: StepCall): string | null {
    this.#refuseNested(call);
    if (this.isOver) return null;
    const stepId = this.#ids.assign(call.userId);
    this.#pending += 1;
    if (this.#pending > 1) this.watch.isConcurrent = true;
    this.#notAwaited.add(stepId);
    return stepId;
  }

  /**
   * What a call leads to that is awaited now: the stored result of its step. Rejects with StepError for one that failed
   * for good. The first call without a stored result owns the invocation; it and whatever is called later never settle.
   */
  perform(call: StepCall, stepId: string): Promise<unknown> {
    this.#notAwaited.delete(stepId);
    this.#refuseNested(call);
    if (!this.isOver && this.#owner === null) {
      const stored = this.memo.get(stepId);
      if (stored !== undefined) return this.#recall(call, stepId, stored);
      const fault = this.watch.executes(stepId, this.#ids);
      if (fault !== null) this.fail(fault);
      else return this.#own(call, stepId);
    }
    return never();
  }

  /** The workflow function returned; counts only if no step came before. */
  returned(value: unknown): void {
    if (this.isOver || this.#owner !== null) return;
    if (this.#notAwaited.size > 0) {
      this.fail(new StepNotAwaitedError([...this.#notAwaited]));
      return;
    }
    let output: string;
    try {
      output = encode(value, "the workflow's return value");
    } catch (error) {
      this.fail(error);
      return;
    }
    this.#record({ text: `{"op":"run_completed","output":${output}}`, failure: null });
    this.watch.ended();
  }

  /** The workflow function threw; counts only if no step came before. */
  threw(error: unknown): void {
    if (this.#owner === null) this.fail(error);
  }

  /** The invocation fails, unless its op is known. */
  fail(error: unknown): void {
    const failure = failureOf(error);
    this.#record({ text: opText({ op: "run_failed", ...failure }), failure: { stepId: null, ...failure.error } });
  }

  /** A call that is made, or awaited, by the body of a step: it would wait for itself. */
  #refuseNested(call: StepCall): void {
    const outer = executing.getStore();
    if (outer !== undefined && outer.replay === this) this.fail(new NestedStepError(call.userId, outer.stepId));
  }

  #record(report: Report): void {
    if (this.#report !== null) return;
    this.#report = report;
    this.#end(report);
  }

  #recall(call: StepCall, stepId: string, stored: StoredStep): Promise<unknown> {
    this.recalled += 1;
    this.#pending -= 1;
    if (stored.status === "completed") return Promise.resolve(stored.output ?? null);
    if (stored.status === "failed") return Promise.reject(stepError(call, stepId, stored.error));
    this.fail(new UnknownStepStatusError(stepId, stored.status));
    return never();
  }

  /** The call ends the invocation. Rejects, and ends nothing, if its fields cannot be held by JSON. */
  #own(call: StepCall, stepId: string): Promise<never> {
    const named = { id: stepId, name: call.userId };
    const { body } = call;
    if (body === undefined) {
      let text: string;
      try {
        text = opText({ op: call.op, ...named, ...call.fields });
      } catch (error) {
        return Promise.reject(error);
      }
      this.#owner = stepId;
      this.#answer(stepId, { text, failure: null });
    } else {
      this.#owner = stepId;
      void this.#execute(call, stepId, body).then((report) => this.#answer(stepId, report));
    }
    return never();
  }

  #answer(stepId: string, report: Report): void {
    if (this.isOver) return;
    this.watch.answered(stepId, this.#ids);
    this.#record(report);
  }

  async #execute(call: StepCall, stepId: string, body: () => unknown): Promise<Report> {
    const named = { id: stepId, name: call.userId, ...call.fields };
    const input = this.captureInput ? inputText(call) : null;
    const started = performance.now();
    try {
      const value: unknown = await executing.run({ replay: this, stepId }, body);
      const output = encode(value, `the return value of step ${shown(stepId)}`);
      const text = opText({ op: "step_completed", ...named, duration_ms: since(started) }, { input, output });
      return { text, failure: null };
    } catch (error) {
      const failure = failureOf(error);
      const text = opText({ op: "step_failed", ...named, duration_ms: since(started), ...failure }, { input });
      return { text, failure: { stepId, ...failure.error } };
    }
  }
}

/** A promise that never settles: what waits for it is collected once nothing else holds it. */
export function never(): Promise<never> {
  return new Promise(() => undefined);
}

function stepError(call: StepCall, stepId: string, error: unknown): StepError {
  const described = (typeof error === "object" && error !== null ? error : { message: error }) as Record<
    string,
    unknown
  >;
  const { name, message, stack } = described;
  const kind = call.op === "invoke" ? InvokeError : StepError;
  return new kind(asText(name) || "Error", asText(message), stepId, stack == null ? undefined : asText(stack));
}

function asText(value: unknown): string {
  return typeof value === "string" ? value : value == null ? "" : shown(value);
}

/** An op as JSON; `texts` are fields that are JSON already, null ones are left out. */
function opText(fields: object, texts: Record<string, string | null> = {}): string {
  const spliced = Object.entries(texts).flatMap(([name, text]) => (text === null ? [] : [`,"${name}":${text}`]));
  return `${encode(fields, "the step's arguments").slice(0, -1)}${spliced.join("")}}`;
}

function since(started: number): number {
  return Math.round(performance.now() - started);
}
