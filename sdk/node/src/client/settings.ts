/** Where the API is, and how a client speaks to it. */

import { parseDuration } from "../duration.js";
import { environment } from "../environment.js";
import { SettingsError } from "../errors.js";
import { shown } from "../shown.js";
import type { ClientOptions } from "./options.js";
import type { TransportOptions } from "./transport.js";

/** What a header holds. A token is in no message, so what is wrong with one must be told before fetch tells it. */
const HEADER_TEXT = /^[!-~]+$/;

/** What the options say, and the environment where they do not. Throws SettingsError, which names the setting. */
export function clientSettings(options: ClientOptions): Omit<TransportOptions, "fetch"> {
  const url = options.url ?? environment("RUNR_API_URL") ?? "";
  const token = options.token ?? environment("RUNR_TOKEN") ?? "";
  const { tenant, retries = 4 } = options;
  if (!/^https?:\/\/./.test(url) || !URL.canParse(url)) {
    throw new SettingsError("url: that of the API, like http://127.0.0.1:8080, or RUNR_API_URL");
  }
  if (token === "") throw new SettingsError("token: one of the API, or RUNR_TOKEN");
  if (!HEADER_TEXT.test(token)) throw new SettingsError("token: it has blanks or characters that no header holds");
  if (tenant !== undefined && !HEADER_TEXT.test(tenant)) {
    throw new SettingsError(`tenant: a slug like "default", not ${shown(tenant, 50)}`);
  }
  if (!Number.isInteger(retries) || retries < 0) {
    throw new SettingsError(`retries: an integer from 0, not ${shown(retries, 50)}`);
  }
  return { url, token, tenant, retries, timeoutMs: timeout(options.timeout ?? "30s") };
}

function timeout(value: unknown): number {
  try {
    return parseDuration(value);
  } catch (error) {
    throw new SettingsError(`timeout: ${(error as Error).message}`);
  }
}
