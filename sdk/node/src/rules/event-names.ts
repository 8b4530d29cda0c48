/** Names of events (engine section 6): which may be sent, and which may be listened to. */

import { typeName } from "../shown.js";
import { quoted } from "./tokens.js";

const MAX_NAME = 200;
const NAME = /^[A-Za-z0-9._:/-]+$/;

/** The events of the platform that are heard: the ends of runs. */
export const RUN_ENDS = ["cancelled", "completed", "failed", "timed_out"].map((end) => `runr/run.${end}`);

/** Why nobody may send an event of this name; null if one may. */
export function senderFault(name: unknown): string | null {
  if (typeof name !== "string") return `must be a string, not ${typeName(name)}`;
  const { length } = [...name];
  if (length < 1 || length > MAX_NAME) return `must have 1–${MAX_NAME} characters, it has ${length}`;
  if (!NAME.test(name)) {
    return `${quoted([...name].slice(0, 60).join(""))} may hold only letters a–z and A–Z, digits and . _ : / -`;
  }
  return name.startsWith("runr/") ? "names under runr/ are reserved for the platform" : null;
}

/** Why no stream may have this name; null if one may. Its messages come as the event `queue/<name>`. */
export function streamFault(name: unknown): string | null {
  return typeof name === "string" && name !== "" ? senderFault(`queue/${name}`) : "must be the name of a stream";
}

/** Why no trigger, wait or cancelOn may name this event; null if one may. */
export function listenerFault(name: unknown): string | null {
  if (typeof name !== "string" || !name.startsWith("runr/")) return senderFault(name);
  return RUN_ENDS.includes(name) ? null : `of the platform's events only ${RUN_ENDS.join(", ")} are heard`;
}
