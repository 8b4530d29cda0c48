/** Workflows of this process, served to the engine that RUNR_API_URL and RUNR_TOKEN name. */

import assert from "node:assert/strict";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import type { Workflows } from "../src/index.js";
import { createServer } from "../src/node.js";

/** Serves them until the end of `story`, as the function of the project. */
export async function serveHere(wf: Workflows<any>, project: string, story: () => Promise<void>): Promise<void> {
  const server = createServer(wf);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { RUNR_API_URL: url, RUNR_TOKEN: token } = process.env;
  const response = await fetch(`${url}/api/projects/${project}/workflows/app`, {
    method: "PATCH",
    headers: { Authorization: `Bearer ${token}` },
    body: JSON.stringify({ endpoint_url: `http://127.0.0.1:${(server.address() as AddressInfo).port}` }),
  });
  const { sync } = (await response.json()) as { sync: { status: string; message: string | null } };
  assert.equal(sync.status, "synced", String(sync.message));
  try {
    await story();
  } finally {
    await server.stop(1);
  }
}
