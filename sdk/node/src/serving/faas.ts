/** Function platforms that call `handler(event, context)`. */

import { answerHeaders } from "../headers.js";
import { errorAnswer } from "../protocol.js";
import { BadRequest } from "../refusal.js";
import type { Handle } from "./handle.js";

/** What a function platform is answered with; `body` is JSON text. */
export interface FaasResult {
  statusCode: number;
  headers: Record<string, string>;
  body: string;
}

type JsonObject = Record<string, unknown>;

/**
 * Answers an event that is the envelope itself, or an HTTP event: `{ body, headers, isBase64Encoded }`.
 *
 * The body may be text, bytes, or what a runtime that parses JSON made of it. Platforms that drop headers are no
 * problem: the envelope repeats the signature. Never rejects.
 */
export async function answerFaas(handle: Handle, event: unknown): Promise<FaasResult> {
  let unpacked: { body: Uint8Array; headers: Record<string, string> };
  try {
    unpacked = unpack(event);
  } catch {
    const { status, body } = errorAnswer(400, "the event holds no body");
    return { statusCode: status, headers: answerHeaders({}), body };
  }
  const { status, body } = await handle(unpacked.body, unpacked.headers);
  return { statusCode: status, headers: answerHeaders(unpacked.headers), body };
}

function unpack(event: unknown): { body: Uint8Array; headers: Record<string, string> } {
  if (!isObject(event) || "runr_workflow" in event) return { body: bytesOf(event), headers: {} };
  const given = Object.entries((event["headers"] ?? {}) as JsonObject).filter(([, value]) => value != null);
  const headers = Object.fromEntries(given.map(([name, value]) => [name, String(value)]));
  const { body } = event;
  if (event["isBase64Encoded"] === true && typeof body === "string") {
    return { body: Uint8Array.from(atob(body), (character) => character.charCodeAt(0)), headers };
  }
  return { body: bytesOf(body), headers };
}

function bytesOf(body: unknown): Uint8Array {
  if (body instanceof Uint8Array) return body;
  if (typeof body === "string") return new TextEncoder().encode(body);
  if (isObject(body)) return new TextEncoder().encode(JSON.stringify(body));
  throw new BadRequest("no body");
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value) && !(value instanceof Uint8Array);
}
