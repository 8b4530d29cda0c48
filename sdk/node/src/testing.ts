/**
 * `@runr/workflows/testing`: workflows run in memory, days pass in milliseconds, steps fail and processes die on demand.
 */

export { CrashError, type CrashOptions, everyCrash } from "./testing/crashes.js";
export { type App, type SendOptions, type StartOptions, TestEngine, type TestEngineOptions } from "./testing/engine.js";
export type { Sent } from "./testing/events.js";
export { Divergence, type Replayed, replay } from "./testing/history.js";
export { UnusedError } from "./testing/faults.js";
export { type Fault, fails, returns } from "./testing/script.js";
export type { History, StoredAttempt, StoredStep, TestRun } from "./testing/stored.js";
export type { Entry, Timeline } from "./testing/timeline.js";
