/**
 * The replay core: one invocation of a workflow (protocol sections 4 and 7).
 *
 * A step call gets its id when it is made and is performed when it is awaited: the stored result of its step, or, as
 * the first one without, the execution of its function. There the invocation ends, unless the answer has room for more:
 * then the result is given to the code as if it had been stored, and the code goes on. From the end on every step call
 * waits for ever: no code of the workflow goes on, so none can swallow the end, and what it holds is collected with it.
 *
 * Calls that are awaited side by side have their turns in that order, and their results are given to the code together,
 * in that order, as by a replay that has all of them. Where it is not certain that a replay comes to the same calls in
 * the same order, the answer ends.
 */

import { AnswerOps, ONE_OP } from "./answer-ops.js";
import { refuseBadFields } from "./asked.js";
import { type StepCall, storedAs } from "./calls.js";
import { Drain } from "./drain.js";
import { InvokeError, NestedStepError, StepError, StepNotAwaitedError, UnknownStepStatusError } from "./errors.js";
import { type FailedAttempt, type InvocationParts, type Made, execute, opText, stepAround } from "./execution.js";
import { failureOf, tracebackOf } from "./failures.js";
import type { InvocationOutcome } from "./middleware.js";
import type { StoredStep } from "./protocol.js";
import { shown } from "./shown.js";
import { StepIds } from "./step-ids.js";
import { encode } from "./values.js";

/** What an invocation is answered with: ops as JSON, and what failed if the last one says that something did. */
export interface Report {
  readonly ops: string;
  readonly failure: FailedAttempt | null;
  /** As middleware is told. */
  readonly outcome: InvocationOutcome;
}

/** A call that is awaited. */
interface Turn {
  readonly call: StepCall;
  readonly stepId: string;
  readonly resolve: (value: unknown) => void;
  readonly reject: (error: unknown) => void;
}

/** The state of one invocation: ids given, results recalled and made, and the ops that it is answered with. */
export class Replay {
  /** Resolves with the answer; what is recorded first stays. */
  readonly ended: Promise<Report>;
  /** How many memoized steps the code has passed. */
  recalled = 0;
  /** Whether this invocation has made a result itself and gone on. */
  hasProgressed = false;
  /** When a sleep was asked for, in unix milliseconds. */
  askedAt: number | null = null;
  /** The memoized steps that were called, in order; of a dry invocation. */
  readonly called: { readonly id: string; readonly kind: string }[] = [];
  #report: Report | null = null;
  #end!: (report: Report) => void;
  readonly #ops: AnswerOps;
  readonly #ids = new StepIds();
  readonly #notAwaited = new Set<string>();
  readonly #drain = new Drain();
  /** Of the moment when the function of a step was called. */
  readonly #sinceBody = new Drain();
  readonly #parts: InvocationParts;
  #pending = 0;
  /** Whether a stored result is being decoded, or the output of the run encoded: calls wait for their turn. */
  #isBusy = false;
  /** The step that is being executed, or that the answer ends with. */
  #owner: string | null = null;
  #lastStep = "";
  #endsWithNext = false;
  #turns: Turn[] = [];
  /** Results that the code is given when no call waits for its turn. */
  #settle: (() => void)[] = [];

  constructor(parts: InvocationParts) {
    this.#parts = parts;
    this.#ops = new AnswerOps(parts.room ?? ONE_OP);
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
    if (this.#parts.isDry === true) return true; // nothing that is logged has happened
    return this.#owner === null && !this.hasProgressed && this.recalled < this.#parts.memo.size;
  }

  /** Attempts so far, of the step that is executed or of the function. */
  get attempt(): number {
    return this.hasProgressed ? 0 : this.#parts.run.attempt;
  }

  /** The step id of a call, in call order; null for one that waits for ever. Refuses a call from inside a body. */
  begin(call: StepCall): string | null {
    this.#refuseNested(call);
    if (this.isOver) return null;
    // Not as a replay would come to it: there, what is executed now takes no time, and what is waited for may take less.
    if (this.#owner !== null || (this.hasProgressed && this.#drain.isOver)) this.#endsWithNext = true;
    const stepId = this.#ids.assign(call.userId);
    if (this.#parts.isDry === true && this.#parts.memo.has(stepId)) this.called.push({ id: stepId, kind: call.op });
    if (this.#pending === 0 && this.recalled === 0 && !this.#parts.pipeline.decodesNothing) this.#drain.begin();
    this.#pending += 1;
    if (this.#pending > 1) this.#parts.watch.isConcurrent = true;
    this.#notAwaited.add(stepId);
    return stepId;
  }

  /**
   * What a call leads to that is awaited now: the stored result of its step, or the one that is made. Rejects with
   * StepError for one that failed for good. The call with which the invocation ends never settles, nor do later ones.
   */
  perform(call: StepCall, stepId: string): Promise<unknown> {
    this.#notAwaited.delete(stepId);
    this.#refuseNested(call);
    if (this.isOver) return never();
    this.awaits();
    return new Promise((resolve, reject) => {
      this.#turns.push({ call, stepId, resolve, reject });
      this.#goOn();
    });
  }

  /** A call is awaited, perhaps once more. Code that does so while a step is executed has gone on without its result. */
  awaits(): void {
    if (this.#owner !== null && this.#sinceBody.isOver) this.#endsWithNext = true;
  }

  /** The workflow function returned; counts only if no step is being executed. */
  returned(value: unknown): void {
    if (this.#isLeft()) return;
    if (this.#notAwaited.size > 0) {
      this.fail(new StepNotAwaitedError([...this.#notAwaited]));
      return;
    }
    const what = "the workflow's return value";
    const complete = (output: unknown): void => {
      this.#record(`{"op":"run_completed","output":${encode(output, what)}}`, "completed");
      this.#parts.watch.ended();
    };
    const { pipeline } = this.#parts;
    if (pipeline.encodesNothing) {
      this.#orFail(() => complete(value));
      return;
    }
    this.#isBusy = true;
    // Through JSON first: what JSON cannot hold is refused before anybody encodes it.
    this.#orFail(() => {
      const plain: unknown = JSON.parse(encode(value, what));
      pipeline.encode(plain, "run").then(
        (output) => this.#orFail(() => complete(output)),
        (error: unknown) => this.fail(error),
      );
    });
  }

  #orFail(act: () => void): void {
    try {
      act();
    } catch (error) {
      this.fail(error);
    }
  }

  /** The workflow function threw; counts only if no step is being executed. */
  threw(error: unknown): void {
    if (!this.#isLeft()) this.fail(error);
  }

  /** The invocation fails, unless its answer is known. */
  fail(error: unknown): void {
    const failure = failureOf(error);
    this.#record(opText({ op: "run_failed", ...failure }), "failed", {
      stepId: null,
      ...failure.error,
      traceback: tracebackOf(error),
    });
  }

  /**
   * Whether the function ended while the answer is known, or a step decides it: nobody is left to go on after that. Where
   * it has waited for something else after a step of this answer, the answer ends without its end: it may be that of code
   * for which the step has lost a race, which it wins in a replay.
   */
  #isLeft(): boolean {
    this.#endsWithNext = true;
    if (this.#owner === null && this.hasProgressed && this.#drain.isOver) this.#finish();
    return this.isOver || this.#owner !== null;
  }

  /** A call that is made, or awaited, by the body of a step: it would wait for itself. */
  #refuseNested(call: StepCall): void {
    const outer = stepAround(this);
    if (outer !== null) this.fail(new NestedStepError(call.userId, outer));
  }

  /** The last op, after which the answer is known; without it where it does not fit: then it is made once more. */
  #record(op: string, status: InvocationOutcome["status"], failure: FailedAttempt | null = null): void {
    if (this.isOver) return;
    if (this.#ops.add(op)) this.#answer(status, failure);
    else this.#answer("continues", null);
  }

  #answer(status: InvocationOutcome["status"], failure: FailedAttempt | null): void {
    const error = failure === null ? null : { name: failure.name, message: failure.message };
    this.#report = { ops: String(this.#ops), failure, outcome: { status, error } };
    this.#turns = [];
    this.#settle = [];
    this.#drain.stop();
    this.#end(this.#report);
  }

  /** Takes turns until a step is being executed; when all have had theirs, the code is given what they came to. */
  #goOn(): void {
    for (let turn = this.#nextTurn(); turn !== undefined; turn = this.#nextTurn()) this.#take(turn);
    if (this.isOver || this.#isBusy || this.#owner !== null) return;
    const { decodesNothing } = this.#parts.pipeline;
    if (!decodesNothing && !this.#drain.isOver) {
      // However long decoding takes, the code gets what it asks for together in one go: so it always takes the same way.
      this.#drain.afterwards(() => this.#goOn());
      return;
    }
    const settle = this.#settle;
    this.#settle = [];
    if (this.hasProgressed || !decodesNothing) this.#drain.begin();
    for (const give of settle) give();
  }

  #nextTurn(): Turn | undefined {
    return this.isOver || this.#isBusy || this.#owner !== null ? undefined : this.#turns.shift();
  }

  #take(turn: Turn): void {
    const { call, stepId } = turn;
    const stored = this.#parts.memo.get(stepId);
    if (stored !== undefined) this.#recall(turn, stored);
    else if (this.#parts.isDry === true) {
      this.#record(opText({ op: "would_run", id: stepId, name: call.userId, kind: call.op }), "continues");
    } else if (this.hasProgressed && (this.#endsWithNext || (call.body !== undefined && this.#ops.isLate)))
      this.#finish();
    else {
      const fault = this.#parts.watch.executes(stepId, this.#ids);
      if (fault !== null) this.fail(fault);
      else this.#own(turn);
    }
  }

  #recall({ call, stepId, resolve, reject }: Turn, stored: StoredStep): void {
    this.recalled += 1;
    this.#pending -= 1;
    const output = stored.output ?? null;
    if (stored.status === "completed" && this.#isDecoded(call)) {
      this.#isBusy = true;
      this.#decoded(call, output).then(
        (value) => {
          this.#isBusy = false;
          this.#settle.push(() => resolve(value));
          this.#goOn();
        },
        (error: unknown) => this.fail(error),
      );
    } else if (stored.status === "completed") this.#settle.push(() => resolve(output));
    else if (stored.status === "failed") this.#settle.push(() => reject(stepError(call, stepId, stored.error)));
    else this.fail(new UnknownStepStatusError(stepId, stored.status));
  }

  /** A step without a result: executed, or the end of the answer. Rejects if the engine would not take its fields. */
  #own({ call, stepId, resolve, reject }: Turn): void {
    if (call.body !== undefined) {
      this.#owner = stepId;
      this.#drain.stop();
      if (this.#ops.takesMore) this.#sinceBody.begin();
      const body = this.#parts.probe?.body(stepId, call) ?? call.body;
      const step = { replay: this, call, stepId, body, attempt: this.attempt };
      void execute(this.#parts, step).then((made) => this.#executed(call, stepId, made, resolve));
      return;
    }
    const made = (fields: object): Made => {
      const text = opText({ op: call.op, id: stepId, name: call.userId, ...fields });
      return { text, output: null, failure: null };
    };
    // `Date.now()` rounds down, and no sleep may be shorter by that.
    if (call.op === "sleep") this.askedAt = Date.now() + 1;
    let plain: Made;
    try {
      refuseBadFields(call);
      plain = made(call.fields);
    } catch (error) {
      this.#settle.push(() => reject(error));
      return;
    }
    this.#owner = stepId;
    this.#lookBack(stepId);
    const { pipeline } = this.#parts;
    if (call.encoded === undefined || pipeline.encodesNothing) this.#ends(stepId, plain);
    else {
      call
        .encoded((data) => pipeline.encodeData(data))
        .then(
          (fields) => this.#orFail(() => this.#ends(stepId, made(fields))),
          (error: unknown) => this.fail(error),
        );
    }
  }

  /** A new step is reported: whether the code has come past all that is memoized. */
  #lookBack(stepId: string): void {
    const { memo, watch } = this.#parts;
    if (this.recalled < memo.size) watch.reports(stepId, memo.keys(), this.#ids);
  }

  #isDecoded(call: StepCall): boolean {
    return storedAs(call) !== null && !this.#parts.pipeline.decodesNothing;
  }

  /** What a call resolves with, of what is stored for it. */
  async #decoded(call: StepCall, output: unknown): Promise<unknown> {
    const { pipeline } = this.#parts;
    const where = storedAs(call);
    if (where === null || (where === "event" && output === null)) return output;
    return where === "event" ? pipeline.decodeEvent(output as { data: unknown }) : pipeline.decode(output, where);
  }

  /** The result of a function stands, and the code goes on, while there is room; any other op is the last one. */
  #executed(call: StepCall, stepId: string, made: Made, resolve: (value: unknown) => void): void {
    if (this.isOver) return;
    const { text, output } = made;
    this.#lookBack(stepId);
    if (output === null) {
      this.#ends(stepId, made);
      return;
    }
    if (!this.#ops.add(text)) {
      this.#finish();
      return;
    }
    this.#lastStep = stepId;
    if (this.#endsWithNext || this.#ops.isFull) {
      this.#finish();
      return;
    }
    const goOn = (value: unknown): void => {
      if (this.#endsWithNext) {
        this.#finish();
        return;
      }
      this.#owner = null;
      this.hasProgressed = true;
      this.#pending -= 1;
      this.#settle.push(() => resolve(value));
      this.#goOn();
    };
    const value: unknown = JSON.parse(output);
    if (this.#isDecoded(call)) this.#decoded(call, value).then(goOn, () => this.#finish());
    else goOn(value);
  }

  #ends(stepId: string, { text, failure }: Made): void {
    this.#parts.watch.answered(stepId, this.#ids);
    this.#record(text, "continues", failure);
  }

  /** The invocation ends with the ops that there are. */
  #finish(): void {
    if (this.isOver) return;
    this.#parts.watch.answered(this.#lastStep, this.#ids);
    this.#answer("continues", null);
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
