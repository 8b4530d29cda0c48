/**
 * `@runr/workflows/fetch`: the same without `wf.serve()` and with nothing of Node, for Workers and other runtimes that
 * speak the fetch API.
 */

export * from "./common.js";
export { Registry as Workflows } from "./registry.js";
