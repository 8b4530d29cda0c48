/** Signatures of engine requests: `v1 = hex(HMAC-SHA256(key, "<t>.<request>"))` (protocol section 6). */

import { NoSigningKey, SignatureRejected } from "./refusal.js";

/** How far the signed time may be from now, both ways, inclusive, in seconds. */
const TOLERANCE_S = 300;

const TIME = /^[0-9]{1,15}$/;
const DIGEST = /^[0-9a-f]{64}$/;
const HMAC = { name: "HMAC", hash: "SHA-256" } as const;

/** Where a signature may stand, undefined where it is absent. `now` is unix seconds, with their fraction. */
export interface Signed {
  readonly header: string | undefined;
  readonly envelope: string | undefined;
  readonly keys: readonly string[];
  readonly request: string;
  readonly now: number;
}

/** The `v1` value for one key. `t` is the text of the header's unix time. */
export async function sign(key: string, t: number | string, request: string): Promise<string> {
  const bytes = new TextEncoder().encode(key);
  // HMAC fills keys up with zeros, and Web Crypto takes no empty ones: one zero is the same key.
  const held = await crypto.subtle.importKey("raw", bytes.length > 0 ? bytes : new Uint8Array(1), HMAC, false, [
    "sign",
  ]);
  const digest = await crypto.subtle.sign(HMAC, held, new TextEncoder().encode(`${t}.${request}`));
  return Array.from(new Uint8Array(digest), (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/**
 * Resolves if the request is the engine's.
 *
 * Throws NoSigningKey if no non-empty key is given, SignatureRejected for everything else.
 */
export async function verify({ header, envelope, keys, request, now }: Signed): Promise<void> {
  const held = keys.filter((key) => key !== "");
  if (held.length === 0) throw new NoSigningKey("no signing key is configured (RUNR_WORKFLOW_SIGNING_KEY)");
  if (header !== undefined && envelope !== undefined && header !== envelope) {
    throw new SignatureRejected("the signatures of header and envelope differ");
  }
  const text = header ?? envelope;
  if (text === undefined) throw new SignatureRejected("the request is not signed");
  const { t, digests } = parse(text);
  if (Math.abs(now - Number(t)) > TOLERANCE_S) throw new SignatureRejected("the signature is stale or from the future");
  if (!request.isWellFormed()) throw new SignatureRejected("the request is not valid Unicode");
  const expected = await Promise.all(held.map((key) => sign(key, t, request)));
  const matches = digests.flatMap((digest) => expected.map((own) => areEqual(digest, own)));
  if (!matches.includes(true)) throw new SignatureRejected("the signature does not match");
}

/** The time as written and the well-formed `v1` values; blanks are allowed only after a comma. */
function parse(text: string): { t: string; digests: string[] } {
  const times: string[] = [];
  const digests: string[] = [];
  for (const [index, item] of text.split(",").entries()) {
    const pair = index === 0 ? item : item.replace(/^ +/, "");
    const at = pair.indexOf("=");
    if (at < 0) throw malformed();
    const [scheme, value] = [pair.slice(0, at), pair.slice(at + 1)];
    if (scheme === "t") times.push(value);
    else if (scheme === "v1" && DIGEST.test(value)) digests.push(value);
  }
  const [t = ""] = times;
  if (times.length !== 1 || !TIME.test(t) || digests.length === 0) throw malformed();
  return { t, digests };
}

/** Compares two digests of the same length in a time that does not depend on where they differ. */
function areEqual(one: string, other: string): boolean {
  let difference = one.length ^ other.length;
  for (let index = 0; index < one.length; index += 1) difference |= one.charCodeAt(index) ^ other.charCodeAt(index);
  return difference === 0;
}

function malformed(): SignatureRejected {
  return new SignatureRejected("the signature is malformed");
}
