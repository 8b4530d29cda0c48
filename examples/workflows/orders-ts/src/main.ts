/** Serves the workflows: `PORT` and `RUNR_WORKFLOW_SIGNING_KEY` are in the environment. */

import { wf } from "./orders.js";

await wf.serve();
