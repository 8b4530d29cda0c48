/** `Workflows`: the registry of a project's workflows, with a server of node:http. */

import type { EventMap } from "./event.js";
import { refuseUnknown } from "./known-options.js";
import { Registry } from "./registry.js";
import { portOf } from "./serving/port.js";
import { SERVE, type ServeOptions } from "./serving/serve-options.js";

/**
 * The workflows of one project.
 *
 * `Events` declares the data of events by their names, for types only: `new Workflows<{ "order.created": Order }>()`.
 */
export class Workflows<Events extends EventMap = Record<string, Record<string, any>>> extends Registry<Events> {
  /**
   * Serves with node:http until SIGTERM or SIGINT, then finishes the requests in flight within `grace` seconds (30).
   *
   * Writes one line to stderr when it listens. Rejects with SettingsError for a port that is taken, or is none. On all
   * interfaces by default, because a container is reached from outside and every request must be signed. `port` defaults
   * to the variable PORT, else 8000.
   */
  async serve(options: ServeOptions = {}): Promise<void> {
    refuseUnknown(options, SERVE);
    if (this.missingKey !== null) {
      this.logger.warn(`no signing key is set (${this.missingKey}): every request will be refused with 500`);
    }
    const { serve } = await import("./serving/server.js");
    const port = portOf(options.port);
    await serve((body, headers) => this.handleRequest(body, headers), this.names, this.logger, { ...options, port });
  }
}
