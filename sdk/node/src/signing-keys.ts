/**
 * Signing keys as they are configured: the protocol takes any text as one, and most texts are a mistake.
 *
 * No message shows a key, or a part of one.
 */

import { environment } from "./environment.js";
import { SettingsError } from "./errors.js";
import type { Logger } from "./logger.js";
import { typeName } from "./shown.js";

export const KEY_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY";
const FALLBACK_VARIABLE = "RUNR_WORKFLOW_SIGNING_KEY_FALLBACK";
/** As the engine makes them. */
const KEY = /^wfsk_[A-Za-z0-9_-]{43,}$/;

/** The keys of a project, as the options of a registry have them. */
export interface GivenKeys {
  readonly signingKey?: string | undefined;
  readonly signingKeyFallback?: string | undefined;
}

/** The keys of a project, the current one first. Warns, once of each, of what looks like no key at all. */
export class SigningKeys {
  readonly #given: readonly (readonly [key: string | undefined, option: string, variable: string])[];
  readonly #logger: Logger;
  #judged: readonly string[] = ["", ""];

  /** What is undefined is what the environment says. Throws SettingsError for what can be no key. */
  constructor({ signingKey, signingKeyFallback }: GivenKeys, logger: Logger) {
    this.#given = [
      [checked("signingKey", signingKey), "signingKey", KEY_VARIABLE],
      [checked("signingKeyFallback", signingKeyFallback), "signingKeyFallback", FALLBACK_VARIABLE],
    ];
    this.#logger = logger;
    this.now(); // what is odd about keys that are there is told before any request
  }

  /** The keys of now, empty where unset: asked on each request. */
  now(): readonly string[] {
    const keys = this.#given.map(([key, , variable]) => key ?? environment(variable) ?? "");
    if (keys.some((key, index) => key !== this.#judged[index])) {
      this.#judged = keys;
      keys.forEach((key, index) => this.#judge(key, index));
    }
    return keys;
  }

  #judge(key: string, index: number): void {
    const doubt = keyDoubt(key);
    const [given, option, variable] = this.#given[index] ?? [];
    if (doubt !== null) this.#logger.warn(`${given === undefined ? variable : option} ${doubt}`);
  }
}

/** What to say of a key that looks like none an engine has made, behind its name; null of any other, and of none. */
export function keyDoubt(key: string): string | null {
  const fault = key === "" ? null : faultOf(key);
  if (fault === null) return null;
  return (
    `does not look like a signing key of an engine: ${fault} (they are wfsk_ and at least 43 of A–Z a–z 0–9 _ -). ` +
    "Every request is refused unless the engine signs with exactly this text"
  );
}

/** What is odd about a key, if anything is. */
function faultOf(key: string): string | null {
  if (KEY.test(key)) return null;
  if (key !== key.trim()) return "it has blanks or a line break around it";
  if (/^(["']).*\1$/s.test(key)) return "it is in quotes";
  if (!key.startsWith("wfsk_")) return "it does not begin with wfsk_";
  if (/^[A-Za-z0-9_-]+$/.test(key)) return `it has only ${key.length} characters, so a part may be missing`;
  return "it holds other characters";
}

function checked(option: string, key: unknown): string | undefined {
  if (key == null) return undefined;
  if (typeof key !== "string")
    throw new SettingsError(`${option}: a text, or undefined for the variable, not ${typeName(key)}`);
  if (!key.isWellFormed()) {
    throw new SettingsError(`${option}: it is not valid Unicode, so no request can be signed with it`);
  }
  return key;
}
