/** The port that `wf.serve()` listens on. */

import { environment } from "../environment.js";
import { SettingsError } from "../errors.js";
import { shown } from "../shown.js";

/** Not 8080, where the engine listens by default. */
const DEFAULT_PORT = 8000;
const MAX_PORT = 65_535;

/** What is given, else the variable PORT, else 8000. Throws SettingsError. */
export function portOf(given: unknown): number {
  if (given != null) return checked("port", given, given);
  const text = environment("PORT")?.trim() ?? "";
  return text === "" ? DEFAULT_PORT : checked("PORT", text, /^[0-9]{1,9}$/.test(text) ? Number(text) : text);
}

function checked(name: string, given: unknown, port: unknown): number {
  if (typeof port === "number" && Number.isInteger(port) && port >= 0 && port <= MAX_PORT) return port;
  throw new SettingsError(`${name}: a port from 0 to ${MAX_PORT}, not ${shown(given, 50)}`);
}
