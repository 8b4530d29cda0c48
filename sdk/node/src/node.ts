/** `@runr/workflows/node`: servers of node:http, for those who want more than `wf.serve()`. */

import type { RequestListener } from "node:http";
import type { Handle } from "./serving/handle.js";
import { requestListener as listenerOf } from "./serving/listener.js";
import { FunctionServer } from "./serving/server.js";

export type { FunctionServer };

/** What serves: a `Workflows`. */
export interface Served {
  readonly handleRequest: Handle;
}

/** A server that answers engine requests on every path, not yet listening; `server.stop(grace)` ends it. */
export function createServer(workflows: Served): FunctionServer {
  return new FunctionServer((body, headers) => workflows.handleRequest(body, headers));
}

/** For a server of your own. It reads the body itself: put it before what parses bodies. */
export function requestListener(workflows: Served): RequestListener {
  return listenerOf((body, headers) => workflows.handleRequest(body, headers));
}
