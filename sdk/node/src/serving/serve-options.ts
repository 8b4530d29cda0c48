/** Where and how `wf.serve()` serves. */
export interface ServeOptions {
  host?: string | undefined;
  port?: number | undefined;
  /** Seconds for the requests in flight at the end. */
  grace?: number | undefined;
  /** Serves until this is aborted too. */
  signal?: AbortSignal | undefined;
}
