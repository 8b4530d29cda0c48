/** The servers that Deno and Bun have of their own, which are given Request and answer Response. */

import type { Workflows } from "../src/index.js";

type Handler = (request: Request) => Promise<Response>;
interface Runtimes {
  Deno?: { serve(options: { hostname: string; port: number; onListen(at: { port: number }): void }, handler: Handler): unknown };
  Bun?: { serve(options: { hostname: string; port: number; maxRequestBodySize: number; fetch: Handler }): { port: number } };
}

/** Serves them on a port of the system's choosing, which one line on stderr says. */
export function serveByFetch(wf: Workflows<any>): void {
  const { Deno, Bun } = globalThis as Runtimes;
  const at = { hostname: "127.0.0.1", port: 0 };
  const listens = ({ port }: { port: number }): void => console.error(`serving on http://127.0.0.1:${port}`);
  if (Deno !== undefined) Deno.serve({ ...at, onListen: listens }, wf.fetchHandler);
  else if (Bun !== undefined) listens(Bun.serve({ ...at, maxRequestBodySize: 2 ** 30, fetch: wf.fetchHandler }));
  else throw new Error("neither Deno nor Bun");
  process.once("SIGTERM", () => process.exit(0));
}
