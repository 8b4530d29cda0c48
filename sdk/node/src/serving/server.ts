/** `wf.serve()`: an HTTP/1.1 server of node:http with a graceful stop. */

import { once } from "node:events";
import { Server } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout } from "node:timers/promises";
import { SettingsError } from "../errors.js";
import type { Logger } from "../logger.js";
import type { Handle } from "./handle.js";
import { requestListener } from "./listener.js";
import type { ServeOptions } from "./serve-options.js";

/** How long a connection may be idle, or a client may take for a request. */
const TIMEOUT_MS = 300_000;
const MAX_HEAD_BYTES = 64 * 1024;
const BACKLOG = 1024;

/** A server that answers engine requests on every path, not yet listening. */
export class FunctionServer extends Server {
  readonly #sockets = new Set<Socket>();

  constructor(handle: Handle) {
    super({ maxHeaderSize: MAX_HEAD_BYTES, keepAliveTimeout: TIMEOUT_MS, requestTimeout: TIMEOUT_MS, noDelay: true });
    this.on(
      "request",
      requestListener(handle, () => !this.listening),
    );
    this.on("connection", (socket: Socket) => {
      this.#sockets.add(socket);
      socket.once("close", () => this.#sockets.delete(socket));
    });
  }

  /**
   * Accepts nothing more, closes idle connections, finishes requests in flight.
   *
   * Resolves with whether all of them ended within `grace` seconds.
   */
  async stop(grace = 30): Promise<boolean> {
    const closed = once(this, "close").then(() => true);
    this.close();
    this.closeIdleConnections();
    // Those that have never sent anything are not idle to Node.
    for (const socket of this.#sockets) if (socket.bytesRead === 0) socket.destroy();
    const over = new AbortController();
    const late = setTimeout(grace * 1000, false, { signal: over.signal }).catch(() => false);
    const inTime = await Promise.race([closed, late]);
    over.abort();
    this.closeAllConnections();
    await closed;
    return inTime;
  }
}

/** Serves until SIGTERM or SIGINT. One line on stderr names the workflows and the address. */
export async function serve(
  handle: Handle,
  names: readonly string[],
  logger: Logger,
  { host = "0.0.0.0", port = 0, grace = 30, signal }: ServeOptions,
): Promise<void> {
  const server = new FunctionServer(handle);
  server.listen(port, host, BACKLOG);
  try {
    await once(server, "listening");
  } catch (error) {
    throw new SettingsError(cannotListen(error as NodeJS.ErrnoException, host, port));
  }
  const address = server.address() as AddressInfo;
  const listed = names.length > 0 ? `workflows ${names.join(", ")}` : "no workflows";
  process.stderr.write(`serving ${listed} on ${urlOf(address)}\n`);
  await untilStopped(signal);
  logger.info(`stopping: finishing requests in flight, for at most ${grace} s`);
  if (!(await server.stop(grace))) {
    logger.warn(`requests in flight were cut off after ${grace} s; the engine will make them again`);
  }
}

/** Until SIGTERM, SIGINT or the abort of `signal`. A second signal ends the process, as it would without this. */
async function untilStopped(signal: AbortSignal | undefined): Promise<void> {
  if (signal?.aborted) return;
  const over = new AbortController();
  const any = [once(process, "SIGTERM", over), once(process, "SIGINT", over)];
  if (signal !== undefined) any.push(once(signal, "abort", over));
  await Promise.race(any);
  over.abort();
  await Promise.allSettled(any);
}

function cannotListen(error: NodeJS.ErrnoException, host: string, port: number): string {
  if (error.code === "EADDRINUSE") {
    return `port ${port} of ${host} is taken by another process: give wf.serve() another port, or set PORT`;
  }
  return `cannot listen on port ${port} of ${host}: ${error.message}`;
}

/** As a URL that can be opened on this machine. */
function urlOf({ address, port }: AddressInfo): string {
  const here = address === "0.0.0.0" ? "127.0.0.1" : address === "::" ? "::1" : undefined;
  const host = here ?? address;
  const url = host.includes(":") ? `http://[${host}]:${port}` : `http://${host}:${port}`;
  return here === undefined ? url : `all interfaces, ${url}`;
}
