/** What every entry to the package has, whatever it serves with. */

export type { Context } from "./context.js";
export {
  DefinitionError,
  type Duration,
  InvokeError,
  NestedStepError,
  NonDeterminismError,
  NonRetriableError,
  RetryAfterError,
  SerializationError,
  SettingsError,
  StepArgumentError,
  StepError,
  StepNotAwaitedError,
  UnknownOptionError,
  UnknownStepStatusError,
} from "./errors.js";
export type { Event, EventMap, OutgoingEvent } from "./event.js";
export type { RequestHeaders } from "./headers.js";
export type { Jsonified } from "./jsonified.js";
export type { Logger } from "./logger.js";
export type { InvocationOutcome, Middleware, StepInfo, StepOutcome, Where } from "./middleware.js";
export type { Answer } from "./protocol.js";
export type { FaasResult } from "./serving/faas.js";
export type { Step, StepRunner } from "./step.js";
export { VERSION } from "./version.js";
export type {
  CancelOn,
  Checkpoint,
  Concurrency,
  CronTrigger,
  EventTrigger,
  QueueTrigger,
  Trigger,
  Workflow,
  WorkflowOptions,
} from "./workflow.js";
export type { WorkflowsOptions } from "./registry.js";
