import type { Members } from "../known-options.js";

/** Where and how `wf.serve()` serves. */
export interface ServeOptions {
  host?: string | undefined;
  port?: number | undefined;
  /** Seconds for the requests in flight at the end. */
  grace?: number | undefined;
  /** Serves until this is aborted too. */
  signal?: AbortSignal | undefined;
}

export const SERVE = Object.keys({
  host: true,
  port: true,
  grace: true,
  signal: true,
} satisfies Members<ServeOptions>);
