/** What a workflow function knows about its run: the `ctx` argument. */

import type { Event } from "./event.js";
import { type Logger, ReplayLogger } from "./logger.js";
import type { ExecuteRequest } from "./protocol.js";
import type { Replay } from "./replay.js";

/**
 * The run that is executed.
 *
 * `source` is one of api, event, cron, queue, invoke, replay; `replay` tells whether this run replays an earlier one;
 * `test` whether a test event started it.
 */
export class Context<E = Event> {
  readonly event: E;
  readonly workflow: string;
  readonly runId: string;
  readonly parentRunId: string | null;
  readonly source: string;
  readonly startedAt: string | null;
  readonly replay: boolean;
  readonly test: boolean;
  /** Silent about what earlier invocations logged. */
  readonly logger: Logger;
  /**
   * The W3C trace headers of this invocation, `traceparent` among them, or nothing. Another one in each invocation of a
   * run: use it for spans, never to decide anything.
   */
  readonly traceContext: Readonly<Record<string, string>>;
  readonly #replay: Replay;
  readonly #logger: ReplayLogger;

  constructor(request: ExecuteRequest, replay: Replay, logger: Logger, trace: Readonly<Record<string, string>>) {
    this.event = request.event as E;
    this.workflow = request.workflow;
    this.runId = request.runId;
    this.parentRunId = request.parentRunId;
    this.source = request.source;
    this.startedAt = request.startedAt;
    this.replay = request.replay;
    this.test = request.test;
    this.traceContext = trace;
    this.#replay = replay;
    this.#logger = new ReplayLogger(logger, replay);
    this.logger = this.#logger;
  }

  /** From 0, the attempts so far of the step about to run again, or of the function. */
  get attempt(): number {
    return this.#replay.attempt;
  }

  /** The W3C `traceparent` of this invocation; null where the engine, or the platform in between, sends none. */
  get traceparent(): string | null {
    return this.traceContext["traceparent"] ?? null;
  }

  /** Whether the code running now ran in an earlier invocation: it has memoized steps before it still. */
  get isReplaying(): boolean {
    return this.#replay.isReplaying;
  }

  /** The invocation has ended: log lines held back so far are emitted or dropped. */
  close(): void {
    this.#logger.flush();
  }
}
