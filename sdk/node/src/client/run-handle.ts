/** One run, as the client sees it. */

import { parseDuration } from "../duration.js";
import { refuseUnknown } from "../known-options.js";
import type { Codecs } from "../pipeline.js";
import { ResultTimeout, RunFailed } from "./errors.js";
import { ABORTABLE, CANCEL, REPLAY, RESULT } from "./options.js";
import type { Abortable, CancelOptions, ReplayOptions, ResultOptions } from "./options.js";
import { type Call, type Transport, pause } from "./transport.js";
import type { Failure, Run, RunDetail, RunStatus, RunStep } from "./views.js";

/** How long one request waits for the end of a run. */
const WAIT_S = 30;
const LONGEST_PAUSE_MS = 5000;

interface ResultView {
  readonly status: RunStatus;
  readonly ended: boolean;
  readonly output: unknown;
  readonly error: Failure | null;
}

/** A run by its id: what `client.start` and `client.run` give. */
export class RunHandle<Output = unknown> {
  readonly #transport: Transport;
  readonly #codecs: Codecs;

  constructor(
    transport: Transport,
    codecs: Codecs,
    readonly id: string,
    /** False where a start was answered with a run that existed, by its key. */
    readonly isNew: boolean = false,
  ) {
    this.#transport = transport;
    this.#codecs = codecs;
  }

  /**
   * The output of the run, waited for.
   *
   * Rejects with RunFailed if the run did not complete, with ResultTimeout if it has not ended in time.
   */
  async result(options: ResultOptions = {}): Promise<Output> {
    refuseUnknown(options, RESULT);
    const { timeout, signal } = options;
    const allowedMs = timeout === undefined ? Number.POSITIVE_INFINITY : parseDuration(timeout);
    const end = performance.now() + allowedMs;
    for (let asked = 0; ; asked += 1) {
      const began = performance.now();
      const wait = Math.min(WAIT_S, Math.ceil(Math.max(0, end - began) / 1000));
      const found = await this.#result(wait, signal);
      if (found.ended) return this.#outcome(found);
      const now = performance.now();
      if (now >= end) throw new ResultTimeout(this.id, allowedMs / 1000);
      // The engine has waited, unless something in between does not let it: then this does, for longer and longer.
      if (now - began < wait * 500)
        await pause(Math.min(100 * 2 ** asked, LONGEST_PAUSE_MS, Math.ceil(end - now) + 1), signal);
    }
  }

  /** The run with its steps, attempts, waits and children. */
  async get(options: Abortable = {}): Promise<RunDetail<Output>> {
    refuseUnknown(options, ABORTABLE);
    const { signal } = options;
    const run = (await this.#call({ method: "GET", path: "", isRepeatable: true, signal })) as RunDetail<Output>;
    if (this.#codecs.decodesNothing) return run;
    return {
      ...run,
      event: run.event === null ? null : await this.#codecs.decodeEvent(run.event),
      output: run.status === "completed" ? ((await this.#codecs.decode(run.output, "run")) as Output) : run.output,
      steps: await Promise.all(run.steps.map((step) => this.#decodedStep(step))),
    };
  }

  /** Cancels the run and, unless told to keep them, the active runs that it has invoked. 409 if it has ended. */
  async cancel(options: CancelOptions = {}): Promise<Run> {
    refuseUnknown(options, CANCEL);
    const { children, signal } = options;
    return this.#post("/cancel", { children }, signal);
  }

  /** Lets a run that failed, was cancelled or timed out go on from where it stopped. 409 otherwise. */
  async retry(options: Abortable = {}): Promise<Run> {
    refuseUnknown(options, ABORTABLE);
    return this.#post("/retry", {}, options.signal);
  }

  /** Starts a new run with the same event, from the start or from a step. */
  async replay(options: ReplayOptions = {}): Promise<RunHandle<Output>> {
    refuseUnknown(options, REPLAY);
    const { fromStep, data, signal } = options;
    const encoded = data === undefined || this.#codecs.encodesNothing ? data : await this.#codecs.encodeData(data);
    const { id } = await this.#post("/replay", { from_step: fromStep, data: encoded }, signal);
    return new RunHandle<Output>(this.#transport, this.#codecs, id, true);
  }

  async #outcome({ status, output, error }: ResultView): Promise<Output> {
    if (status !== "completed") throw new RunFailed(this.id, status as RunFailed["status"], error);
    return (this.#codecs.decodesNothing ? output : await this.#codecs.decode(output, "run")) as Output;
  }

  async #decodedStep(step: RunStep): Promise<RunStep> {
    if (step.status !== "completed" || step.output === null) return step;
    switch (step.kind) {
      case "run":
        return { ...step, output: await this.#codecs.decode(step.output, "step") };
      case "invoke":
        return { ...step, output: await this.#codecs.decode(step.output, "run") };
      case "wait_for_event":
        return { ...step, output: await this.#codecs.decodeEvent(step.output as { data: unknown }) };
      default:
        return step;
    }
  }

  /** Made again only where the engine has refused it for now: done twice it would be something else. */
  async #post(path: string, body: object, signal: AbortSignal | undefined): Promise<Run> {
    return (await this.#call({ method: "POST", path, body, isRepeatable: false, signal })) as Run;
  }

  async #result(wait: number, signal: AbortSignal | undefined): Promise<ResultView> {
    const call = { path: "/result", query: { wait }, waitMs: wait * 1000, isRepeatable: true, signal };
    return (await this.#call({ method: "GET", ...call })) as ResultView;
  }

  async #call(call: Call): Promise<unknown> {
    const path = `/runs/${encodeURIComponent(this.id)}${call.path}`;
    return (await this.#transport.call({ ...call, path })).body;
  }
}
