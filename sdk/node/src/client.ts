/** `@runr/workflows/client`: events, runs and their results, over fetch alone. */

export { Client } from "./client/client.js";
export { ApiError, ApiUnreachable, type Fault, ResultTimeout, RunFailed } from "./client/errors.js";
export type {
  Abortable,
  CancelOptions,
  ClientOptions,
  EventFilter,
  ReplayOptions,
  ResultOptions,
  RunFilter,
  SendOptions,
  StartOptions,
} from "./client/options.js";
export { SettingsError, UnknownOptionError } from "./errors.js";
export type { RunHandle } from "./client/run-handle.js";
export type {
  Attempt,
  Failure,
  Run,
  RunDetail,
  RunSource,
  RunStatus,
  RunStep,
  RunWait,
  SentEvent,
  StoredEvent,
} from "./client/views.js";
