/**
 * Errors of the client.
 *
 *     Error
 *     ├── ApiError           the API has answered with an error; RFC 9457
 *     ├── ApiUnreachable     no answer, or none in time; what the request did is not known
 *     ├── RunFailed          the run whose result was asked for has failed, was cancelled or timed out
 *     └── ResultTimeout      the run has not ended in the time given
 */

/** One fault of the input: `path` is like `events[3].name`, empty for the whole body. */
export interface Fault {
  readonly path: string;
  readonly message: string;
}

/** The API has answered with an error. The message is its `detail`. */
export class ApiError extends Error {
  override name = "ApiError";
  readonly status: number;
  /** The kind of the error, such as `invalid-input` or `not-found`: the last part of the problem's `type`. */
  readonly code: string;
  /** The path of the first fault of the input, such as `events[3].name`; null where there is none. */
  readonly field: string | null;
  readonly errors: readonly Fault[];
  /** By this the logs of the engine know the request. */
  readonly traceId: string | null;
  /** Seconds after which the request may be made again, where the answer says so. */
  readonly retryAfter: number | null;

  constructor(status: number, body: string, headers: Headers) {
    const problem = problemOf(body);
    super(problem?.detail ?? `the API answered with ${status}: ${body.slice(0, 200)}`);
    this.status = status;
    this.code = problem?.type.split("/").at(-1) ?? "unknown";
    this.errors = problem?.errors ?? [];
    this.field = this.errors[0]?.path || null;
    this.traceId = problem?.trace_id ?? headers.get("x-trace-id");
    const asked = Number(headers.get("retry-after") ?? Number.NaN);
    this.retryAfter = Number.isFinite(asked) ? asked : null;
  }
}

/** There was no answer, or none in time. What the request did is not known. */
export class ApiUnreachable extends Error {
  override name = "ApiUnreachable";
}

/** The run whose result was asked for has not completed. The message is that of the run's error. */
export class RunFailed extends Error {
  override name = "RunFailed";
  readonly runId: string;
  readonly status: "failed" | "cancelled" | "timed_out";
  /** What the run failed with; null for one that was cancelled. */
  readonly error: { readonly name: string; readonly message: string; readonly stack?: string | null } | null;

  constructor(runId: string, status: RunFailed["status"], error: RunFailed["error"]) {
    super(`run ${runId} ${status === "timed_out" ? "timed out" : status}${error === null ? "" : `: ${error.message}`}`);
    this.runId = runId;
    this.status = status;
    this.error = error;
  }
}

/** The run has not ended in the time given. It goes on. */
export class ResultTimeout extends Error {
  override name = "ResultTimeout";

  constructor(runId: string, seconds: number) {
    super(`run ${runId} has not ended within ${seconds} s`);
  }
}

interface Problem {
  readonly type: string;
  readonly detail: string;
  readonly errors: readonly Fault[];
  readonly trace_id: string;
}

/** The body of an error of this API; null for one of something in between. */
function problemOf(body: string): Problem | null {
  try {
    const problem = JSON.parse(body) as Partial<Problem> | null;
    const isOne =
      typeof problem?.type === "string" && typeof problem.detail === "string" && Array.isArray(problem.errors);
    return isOne ? (problem as Problem) : null;
  } catch {
    return null;
  }
}
