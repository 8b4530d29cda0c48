/** Durable workflows: ordinary async functions whose steps survive crashes, redeploys and sleeps of days. */

export * from "./common.js";
export type { ServeOptions } from "./serving/serve-options.js";
export { Workflows } from "./workflows.js";
