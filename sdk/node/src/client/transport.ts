/** Requests of the API over fetch: tries, times, and what comes back. */

import { ApiError, ApiUnreachable } from "./errors.js";

/** Answers after which the same request may be made again, if it may be made twice. */
const PASSING = new Set([429, 502, 503, 504]);
const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 10_000;

export interface TransportOptions {
  /** With or without `/api` at its end. */
  readonly url: string;
  readonly token: string;
  readonly tenant: string | undefined;
  readonly retries: number;
  /** Milliseconds for an answer. */
  readonly timeoutMs: number;
  readonly fetch: typeof fetch;
}

/** One call. `isRepeatable`: whether making it twice is making it once. */
export interface Call {
  readonly method: "GET" | "POST";
  readonly path: string;
  readonly query?: Readonly<Record<string, unknown>>;
  readonly body?: unknown;
  readonly isRepeatable: boolean;
  /** Milliseconds for an answer beyond the usual ones. */
  readonly waitMs?: number;
  readonly signal?: AbortSignal | undefined;
}

/** What the API has answered. */
export interface Reply {
  readonly status: number;
  readonly body: unknown;
}

/** Makes requests, and makes them again. */
export class Transport {
  readonly #options: TransportOptions;
  readonly #base: string;

  constructor(options: TransportOptions) {
    this.#options = options;
    this.#base = options.url.replace(/\/+$/, "").replace(/\/api$/, "");
  }

  /**
   * The answer to a call. Rejects with ApiError, ApiUnreachable, or the reason of the signal's abort.
   *
   * Tried again with a growing pause: after 429 any call, after no answer and 502 to 504 those that may be repeated.
   */
  async call(call: Call): Promise<Reply> {
    for (let made = 0; ; made += 1) {
      call.signal?.throwIfAborted();
      try {
        return await this.#attempt(call);
      } catch (error) {
        const pauseMs = made < this.#options.retries ? pauseBefore(error, made, call.isRepeatable) : null;
        if (pauseMs === null) throw error;
        await pause(pauseMs, call.signal);
      }
    }
  }

  async #attempt(call: Call): Promise<Reply> {
    const { token, tenant, timeoutMs, fetch } = this.#options;
    const over = new AbortController();
    const abort = (): void => over.abort();
    const timer = setTimeout(abort, timeoutMs + (call.waitMs ?? 0));
    call.signal?.addEventListener("abort", abort);
    try {
      const response = await fetch(this.#url(call), {
        method: call.method,
        headers: {
          Accept: "application/json",
          Authorization: `Bearer ${token}`,
          ...(call.body === undefined ? {} : { "Content-Type": "application/json" }),
          ...(tenant === undefined ? {} : { "X-Tenant-ID": tenant }),
        },
        body: call.body === undefined ? null : JSON.stringify(call.body),
        redirect: "manual",
        signal: over.signal,
      });
      return await reply(response);
    } catch (error) {
      if (error instanceof ApiError) throw error;
      call.signal?.throwIfAborted();
      const why = over.signal.aborted ? "no answer in time" : error instanceof Error ? error.message : String(error);
      throw new ApiUnreachable(`${call.method} ${this.#base}/api${call.path}: ${why}`, { cause: error });
    } finally {
      clearTimeout(timer);
      call.signal?.removeEventListener("abort", abort);
    }
  }

  #url({ path, query = {} }: Call): string {
    const parameters = new URLSearchParams();
    for (const [name, value] of Object.entries(query)) {
      for (const item of Array.isArray(value) ? value : [value]) {
        if (item !== undefined) parameters.append(name, item instanceof Date ? item.toISOString() : String(item));
      }
    }
    const text = parameters.toString();
    return `${this.#base}/api${path}${text === "" ? "" : `?${text}`}`;
  }
}

/** Resolves after so many milliseconds; rejects with the reason of the abort. */
export function pause(milliseconds: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    const aborted = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", aborted);
      resolve();
    }, milliseconds);
    if (signal?.aborted) aborted();
    else signal?.addEventListener("abort", aborted, { once: true });
  });
}

async function reply(response: Response): Promise<Reply> {
  const text = await response.text();
  if (!response.ok) {
    throw new ApiError(response.status, text, response.headers);
  }
  try {
    return { status: response.status, body: text === "" ? null : (JSON.parse(text) as unknown) };
  } catch {
    throw new ApiError(response.status, `no JSON: ${text}`, response.headers);
  }
}

/** Milliseconds before the next try; null if there is none. */
function pauseBefore(error: unknown, made: number, isRepeatable: boolean): number | null {
  const isPassing = error instanceof ApiError ? PASSING.has(error.status) : error instanceof ApiUnreachable;
  const isRefused = error instanceof ApiError && error.status === 429;
  if (!isPassing || !(isRepeatable || isRefused)) return null;
  const backoff = Math.min(FIRST_PAUSE_MS * 2 ** made, LONGEST_PAUSE_MS) * (0.8 + 0.4 * Math.random());
  return error instanceof ApiError ? Math.max(backoff, (error.retryAfter ?? 0) * 1000) : backoff;
}
