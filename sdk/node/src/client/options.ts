/** What the methods of the client take. */

import type { Duration } from "../errors.js";
import type { Members } from "../known-options.js";
import type { Middleware } from "../middleware.js";
import type { RunStatus } from "./views.js";

export interface ClientOptions {
  /** Of the API, with or without `/api`; RUNR_API_URL by default. */
  url?: string | undefined;
  /** RUNR_TOKEN by default. */
  token?: string | undefined;
  /** The project of the workflows that are started and listed; `default` by default. */
  project?: string | undefined;
  /** One of the tenants of the token's owner; the token's own by default. */
  tenant?: string | undefined;
  /** How often a request is made again that may be; 4 by default. */
  retries?: number | undefined;
  /** How long an answer may take; 30 s by default. */
  timeout?: Duration | undefined;
  /** The middleware of the project: what is sent is encoded, what is read decoded. Hooks are not called. */
  middleware?: readonly Middleware[] | undefined;
  fetch?: typeof fetch | undefined;
}

/** An abort rejects with the reason of the signal. What was sent before may have been done. */
export interface Abortable {
  signal?: AbortSignal | undefined;
}

export interface SendOptions extends Abortable {
  /** Starts test runs. */
  test?: boolean | undefined;
}

export interface StartOptions<Data> extends Abortable {
  data?: Data | undefined;
  /** A second start of the workflow with it answers the run of the first. In place of the option `idempotency`. */
  key?: string | undefined;
  /** Start later: after a duration, or at a time. */
  delay?: Duration | undefined;
  at?: Date | string | undefined;
  tags?: readonly string[] | undefined;
  test?: boolean | undefined;
}

export interface ResultOptions extends Abortable {
  /** How long to wait; for ever by default. */
  timeout?: Duration | undefined;
}

export interface CancelOptions extends Abortable {
  /** Let the runs go on that this one has invoked. */
  children?: "cancel" | "keep" | undefined;
}

export interface ReplayOptions extends Abortable {
  /** Keep the results of the steps before this one. */
  fromStep?: string | undefined;
  /** In place of the data of the run's event. */
  data?: object | undefined;
}

interface Listed extends Abortable {
  from?: Date | string | undefined;
  to?: Date | string | undefined;
  /** Entries that one request asks for: 1–200, 50 by default. */
  pageSize?: number | undefined;
}

export interface RunFilter extends Listed {
  workflow?: string | { readonly name: string } | undefined;
  status?: RunStatus | readonly RunStatus[] | undefined;
  tag?: string | readonly string[] | undefined;
  /** A run's id, idempotency key, or the id of its event. */
  q?: string | undefined;
}

export interface EventFilter extends Listed {
  /** The beginning of the name. */
  name?: string | undefined;
  source?: "api" | "workflow" | "queue" | "platform" | undefined;
}

/** The names of the options, of which plain JavaScript may have others. */
const abortable = { signal: true } satisfies Members<Abortable>;
const listed = { from: true, to: true, pageSize: true, ...abortable } satisfies Members<Listed>;

export const ABORTABLE = Object.keys(abortable);
export const CLIENT = Object.keys({
  url: true,
  token: true,
  project: true,
  tenant: true,
  retries: true,
  timeout: true,
  middleware: true,
  fetch: true,
} satisfies Members<ClientOptions>);
export const SEND = Object.keys({ test: true, ...abortable } satisfies Members<SendOptions>);
export const START = Object.keys({
  data: true,
  key: true,
  delay: true,
  at: true,
  tags: true,
  test: true,
  ...abortable,
} satisfies Members<StartOptions<object>>);
export const RESULT = Object.keys({ timeout: true, ...abortable } satisfies Members<ResultOptions>);
export const CANCEL = Object.keys({ children: true, ...abortable } satisfies Members<CancelOptions>);
export const REPLAY = Object.keys({ fromStep: true, data: true, ...abortable } satisfies Members<ReplayOptions>);
export const RUNS = Object.keys({
  workflow: true,
  status: true,
  tag: true,
  q: true,
  ...listed,
} satisfies Members<RunFilter>);
export const EVENTS = Object.keys({ name: true, source: true, ...listed } satisfies Members<EventFilter>);
