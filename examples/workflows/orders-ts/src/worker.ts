/** The same for runtimes that speak the fetch API: Workers, Deno, Bun. */

import { wf } from "./orders.js";

export default { fetch: wf.fetchHandler };
