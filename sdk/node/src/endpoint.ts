/** What a function answers: from a body and its headers to a status and a body, over any transport. */

import { Context } from "./context.js";
import { type RequestHeaders, lowerNames } from "./headers.js";
import type { Logger } from "./logger.js";
import { LostSteps } from "./lost-steps.js";
import type { Probe } from "./execution.js";
import type { Middleware } from "./middleware.js";
import type { Pipeline } from "./pipeline.js";
import {
  type Answer,
  type ExecuteRequest,
  SIGNATURE_HEADER,
  dryAnswer,
  errorAnswer,
  introspectAnswer,
  opsAnswer,
  openEnvelope,
  parseRequest,
} from "./protocol.js";
import { BadRequest, RequestRefused } from "./refusal.js";
import { Replay, type Report } from "./replay.js";
import { shown } from "./shown.js";
import { Step } from "./step.js";
import { traceContext } from "./trace.js";
import type { Workflow } from "./workflow.js";

/** What an endpoint is made of. `keys` and `clock` (unix seconds) are asked on each request. */
export interface EndpointParts {
  readonly workflows: ReadonlyMap<string, Workflow>;
  readonly keys: () => readonly string[];
  readonly clock: () => number;
  readonly logger: Logger;
  readonly captureInput: boolean;
  readonly pipeline: Pipeline;
}

/** Headers by their names in lower case. */
type NamedHeaders = ReadonlyMap<string, string>;

/** The text of a request, once it is known to be the engine's. */
type Open = (headers: NamedHeaders) => Promise<string>;

/** A request as it came: `began` is when, of `performance.now()`. */
interface Received {
  readonly began: number;
  readonly probe?: Probe;
}

/** Answers engine requests for a set of workflows. */
export class Endpoint {
  readonly #parts: EndpointParts;
  readonly #lostSteps: LostSteps;

  constructor(parts: EndpointParts) {
    this.#parts = parts;
    this.#lostSteps = new LostSteps(parts.logger);
  }

  /** Answers a request. Never rejects. */
  handle(body: Uint8Array, headers: RequestHeaders): Promise<Answer> {
    const { keys, clock } = this.#parts;
    const began = performance.now();
    const open: Open = (named) => openEnvelope(body, named.get(SIGNATURE_HEADER), keys(), clock());
    return this.#answer(open, headers, { began });
  }

  /** Answers a request that is no envelope and not signed: one that does not come from outside. Never rejects. */
  answer(text: string, probe?: Probe): Promise<Answer> {
    return this.#answer(async () => text, {}, { began: performance.now(), ...(probe === undefined ? {} : { probe }) });
  }

  /** The middleware of the project. */
  get pipeline(): Pipeline {
    return this.#parts.pipeline;
  }

  async #answer(open: Open, headers: RequestHeaders, received: Received): Promise<Answer> {
    const { workflows, logger } = this.#parts;
    try {
      const named = lowerNames(headers);
      const request = parseRequest(await open(named));
      if (request.type === "introspect") {
        return { status: 200, body: introspectAnswer(Array.from(workflows.values(), ({ definition }) => definition)) };
      }
      const workflow = workflows.get(request.workflow);
      if (workflow === undefined) throw new BadRequest(`the workflow ${shown(request.workflow)} is not served here`);
      return { status: 200, body: await this.#execute(workflow, request, named, received) };
    } catch (error) {
      if (error instanceof RequestRefused) {
        logger.warn(`a request was refused with ${error.status}: ${error.message}`);
        return errorAnswer(error.status, error.message);
      }
      logger.error("the SDK failed to answer a request", error);
      return errorAnswer(500, "the SDK failed; see the log of the function");
    }
  }

  /** Runs the workflow until a step ends the invocation or it returns; the body of the answer. */
  async #execute(
    workflow: Workflow,
    request: ExecuteRequest,
    headers: NamedHeaders,
    { began, probe }: Received,
  ): Promise<string> {
    const { logger, captureInput, pipeline } = this.#parts;
    const until = request.budgetMs === null ? null : began + request.budgetMs;
    const replay = new Replay({
      run: request,
      memo: request.steps,
      watch: (request.dry ? new LostSteps(logger) : this.#lostSteps).watch(workflow.name, request.runId),
      pipeline,
      captureInput,
      room: { maxOps: request.maxOps, until },
      isDry: request.dry,
      probe,
    });
    const trace = traceContext((name) => headers.get(name));
    const event = await pipeline.decodeEvent(request.event).catch((error: unknown) => {
      replay.fail(error);
      return request.event;
    });
    const context = new Context({ ...request, event }, replay, logger, trace);
    const begun: Middleware[] = [];
    void run(workflow, context, replay, pipeline, begun);
    const report = await replay.ended;
    if (!request.dry) {
      context.close();
      this.#logFailure(context, report);
    }
    await pipeline.ends("invocationEnds", begun, context, report.outcome);
    return request.dry ? dryAnswer(report.ops, replay.called) : opsAnswer(report.ops, replay.askedAt);
  }

  /**
   * A line for an attempt that failed, counted from 1: whoever runs the function sees it without the engine. Below it
   * the stack, unless the error was thrown on purpose.
   */
  #logFailure({ workflow, runId, attempt }: Context<unknown>, { failure }: Report): void {
    if (failure === null) return;
    const { stepId, name, message, traceback } = failure;
    const step = stepId === null ? "" : `, step ${stepId}`;
    const told = `${name}: ${message}`;
    // The stack of V8 begins with the same.
    const below = traceback === null ? "" : traceback.startsWith(told) ? traceback.slice(told.length) : `\n${traceback}`;
    this.#parts.logger.warn(`workflow ${workflow}, run ${runId}${step}: attempt ${attempt + 1} failed: ${told}${below}`);
  }
}

/** Never rejects: what the function throws is reported, or comes after the op and does not count. */
async function run(
  workflow: Workflow,
  context: Context<unknown>,
  replay: Replay,
  pipeline: Pipeline,
  begun: Middleware[],
): Promise<void> {
  if (pipeline.hears("invocation") && !replay.isOver) {
    try {
      await pipeline.starts("invocationStarts", begun, context);
    } catch (error) {
      replay.fail(error);
    }
  }
  if (replay.isOver) return;
  try {
    replay.returned(await workflow.fn(context, new Step(replay)));
  } catch (error) {
    replay.threw(error);
  }
}
