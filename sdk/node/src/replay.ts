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

import { AsyncLocalStorage } from "node:async_hooks";
import { AnswerOps, ONE_OP, type Room } from "./answer-ops.js";
import { type StepCall, inputText } from "./calls.js";
import { Drain } from "./drain.js";
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

/** What an invocation is answered with: ops as JSON, and what failed if the last one says that something did. */
export interface Report {
  readonly ops: string;
  readonly failure: FailedAttempt | null;
}

/** An op as JSON. `output` is what the step has come to, null for one that the answer ends with. */
interface Made {
  readonly text: string;
  readonly output: string | null;
  readonly failure: FailedAttempt | null;
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
  #report: Report | null = null;
  #end!: (report: Report) => void;
  readonly #ops: AnswerOps;
  readonly #ids = new StepIds();
  readonly #notAwaited = new Set<string>();
  readonly #drain = new Drain();
  #pending = 0;
  /** The step that is being executed, or that the answer ends with. */
  #owner: string | null = null;
  #lastStep = "";
  #endsWithNext = false;
  #turns: Turn[] = [];
  /** Results that the code is given when no call waits for its turn. */
  #settle: (() => void)[] = [];

  constructor(
    private readonly memo: ReadonlyMap<string, StoredStep>,
    private readonly watch: StepWatch,
    private readonly captureInput: boolean,
    room: Room = ONE_OP,
  ) {
    this.#ops = new AnswerOps(room);
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
    return this.#owner === null && !this.hasProgressed && this.recalled < this.memo.size;
  }

  /** The step id of a call, in call order; null for one that waits for ever. Refuses a call from inside a body. */
  begin(call: StepCall): string | null {
    this.#refuseNested(call);
    if (this.isOver) return null;
    // Not as a replay would come to it: there, what is executed now takes no time, and what is waited for may take less.
    if (this.#owner !== null || (this.hasProgressed && this.#drain.isOver)) this.#endsWithNext = true;
    const stepId = this.#ids.assign(call.userId);
    this.#pending += 1;
    if (this.#pending > 1) this.watch.isConcurrent = true;
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
    return new Promise((resolve, reject) => {
      this.#turns.push({ call, stepId, resolve, reject });
      this.#goOn();
    });
  }

  /** The workflow function returned; counts only if no step is being executed. */
  returned(value: unknown): void {
    if (this.#isLeft()) return;
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
    this.#record(`{"op":"run_completed","output":${output}}`);
    this.watch.ended();
  }

  /** The workflow function threw; counts only if no step is being executed. */
  threw(error: unknown): void {
    if (!this.#isLeft()) this.fail(error);
  }

  /** The invocation fails, unless its answer is known. */
  fail(error: unknown): void {
    const failure = failureOf(error);
    this.#record(opText({ op: "run_failed", ...failure }), { stepId: null, ...failure.error });
  }

  /** Whether the function ended while the answer is known, or a step decides it: nobody is left to go on after that. */
  #isLeft(): boolean {
    this.#endsWithNext = true;
    return this.isOver || this.#owner !== null;
  }

  /** A call that is made, or awaited, by the body of a step: it would wait for itself. */
  #refuseNested(call: StepCall): void {
    const outer = executing.getStore();
    if (outer !== undefined && outer.replay === this) this.fail(new NestedStepError(call.userId, outer.stepId));
  }

  /** The last op, after which the answer is known; without it where it does not fit: then it is made once more. */
  #record(op: string, failure: FailedAttempt | null = null): void {
    if (!this.isOver) this.#answer(this.#ops.add(op) ? failure : null);
  }

  #answer(failure: FailedAttempt | null): void {
    this.#report = { ops: String(this.#ops), failure };
    this.#turns = [];
    this.#settle = [];
    this.#drain.stop();
    this.#end(this.#report);
  }

  /** Takes turns until a step is being executed; when all have had theirs, the code is given what they came to. */
  #goOn(): void {
    for (let turn = this.#nextTurn(); turn !== undefined; turn = this.#nextTurn()) this.#take(turn);
    if (this.isOver || this.#owner !== null) return;
    const settle = this.#settle;
    this.#settle = [];
    if (this.hasProgressed) this.#drain.begin();
    for (const give of settle) give();
  }

  #nextTurn(): Turn | undefined {
    return this.isOver || this.#owner !== null ? undefined : this.#turns.shift();
  }

  #take(turn: Turn): void {
    const { call, stepId } = turn;
    const stored = this.memo.get(stepId);
    if (stored !== undefined) this.#recall(turn, stored);
    else if (this.hasProgressed && (this.#endsWithNext || (call.body !== undefined && this.#ops.isLate))) this.#finish();
    else {
      const fault = this.watch.executes(stepId, this.#ids);
      if (fault !== null) this.fail(fault);
      else this.#own(turn);
    }
  }

  #recall({ call, stepId, resolve, reject }: Turn, stored: StoredStep): void {
    this.recalled += 1;
    this.#pending -= 1;
    if (stored.status === "completed") this.#settle.push(() => resolve(stored.output ?? null));
    else if (stored.status === "failed") this.#settle.push(() => reject(stepError(call, stepId, stored.error)));
    else this.fail(new UnknownStepStatusError(stepId, stored.status));
  }

  /** A step without a result: executed, or the end of the answer. Rejects if its fields cannot be held by JSON. */
  #own({ call, stepId, resolve, reject }: Turn): void {
    if (call.body === undefined) {
      let text: string;
      try {
        text = opText({ op: call.op, id: stepId, name: call.userId, ...call.fields });
      } catch (error) {
        this.#settle.push(() => reject(error));
        return;
      }
      this.#owner = stepId;
      this.#ends(stepId, { text, output: null, failure: null });
    } else {
      this.#owner = stepId;
      this.#drain.stop();
      void this.#execute(call, stepId, call.body).then((made) => this.#executed(stepId, made, resolve));
    }
  }

  /** The result of a function stands, and the code goes on, while there is room; any other op is the last one. */
  #executed(stepId: string, made: Made, resolve: (value: unknown) => void): void {
    if (this.isOver) return;
    const { text, output } = made;
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
    this.#owner = null;
    this.hasProgressed = true;
    this.#pending -= 1;
    this.#settle.push(() => resolve(JSON.parse(output)));
    this.#goOn();
  }

  #ends(stepId: string, { text, failure }: Made): void {
    this.watch.answered(stepId, this.#ids);
    this.#record(text, failure);
  }

  /** The invocation ends with the ops that there are. */
  #finish(): void {
    this.watch.answered(this.#lastStep, this.#ids);
    this.#answer(null);
  }

  async #execute(call: StepCall, stepId: string, body: () => unknown): Promise<Made> {
    const named = { id: stepId, name: call.userId, ...call.fields };
    const input = this.captureInput ? inputText(call) : null;
    const started = performance.now();
    try {
      const value: unknown = await executing.run({ replay: this, stepId }, body);
      const output = encode(value, `the return value of step ${shown(stepId)}`);
      const text = opText({ op: "step_completed", ...named, duration_ms: since(started) }, { input, output });
      return { text, output, failure: null };
    } catch (error) {
      const failure = failureOf(error);
      const text = opText({ op: "step_failed", ...named, duration_ms: since(started), ...failure }, { input });
      return { text, output: null, failure: { stepId, ...failure.error } };
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
