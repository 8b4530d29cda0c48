/** Protocol v1 without I/O: envelope, requests, answers (protocol sections 1, 2 and 4). */

import { environment } from "./environment.js";
import { SettingsError } from "./errors.js";
import type { Event } from "./event.js";
import { BadRequest, BodyTooLarge } from "./refusal.js";
import { shown } from "./shown.js";
import { verify } from "./signature.js";
import { VERSION as SDK_VERSION } from "./version.js";

const VERSION = "v1";
const VERSION_VARIABLE = "RUNR_WORKFLOW_PROTOCOL";
export const MAX_BODY_BYTES = 64 * 1024 * 1024;
export const SIGNATURE_HEADER = "x-runr-signature";
const CAPABILITIES = ["dry", "max_ops"];
const SDK = { name: "@runr/workflows", language: "typescript", version: SDK_VERSION };

/** Throws SettingsError when the platform has set RUNR_WORKFLOW_PROTOCOL to what this SDK does not speak. */
export function checkVersion(): void {
  const given = environment(VERSION_VARIABLE) ?? "";
  if (given !== "" && given !== VERSION) {
    throw new SettingsError(
      `${VERSION_VARIABLE} is ${JSON.stringify(given.slice(0, 100))}, and this SDK (${SDK_VERSION}) speaks ${VERSION} only: ` +
        `install the SDK for that protocol, or set the variable to ${VERSION}`,
    );
  }
}

/** HTTP status and JSON body. */
export interface Answer {
  readonly status: number;
  readonly body: string;
}

/** The stored result of a step, as the request holds it. */
export interface StoredStep {
  readonly status?: unknown;
  readonly output?: unknown;
  readonly error?: unknown;
}

/** The engine asks which workflows are served. */
export interface IntrospectRequest {
  readonly type: "introspect";
}

/**
 * The engine asks for the next op of a run, or for up to `maxOps` of them, of steps that begin within `budgetMs`; with
 * `dry`, for what that op would be. Fields of the request that this SDK does not know are ignored.
 */
export interface ExecuteRequest {
  readonly type: "execute";
  readonly workflow: string;
  readonly runId: string;
  readonly attempt: number;
  readonly source: string;
  readonly startedAt: string | null;
  readonly parentRunId: string | null;
  readonly replay: boolean;
  readonly test: boolean;
  readonly event: Event;
  readonly steps: ReadonlyMap<string, StoredStep>;
  readonly maxOps: number;
  readonly budgetMs: number | null;
  readonly dry: boolean;
}

type JsonObject = Record<string, unknown>;

/**
 * The verified request text of a body.
 *
 * `header` is the value of X-RunR-Signature, `now` unix seconds. Throws RequestRefused, whose `status` is 400 (not a v1
 * envelope), 401 (signature), 413 (too large) or 500 (no key).
 */
export async function openEnvelope(
  body: Uint8Array,
  header: string | undefined,
  keys: readonly string[],
  now: number,
): Promise<string> {
  if (body.length > MAX_BODY_BYTES) {
    throw new BodyTooLarge(`the body has ${body.length} bytes, the limit is ${MAX_BODY_BYTES}`);
  }
  const envelope = json(decoded(body));
  if (!isObject(envelope) || envelope["runr_workflow"] !== VERSION) {
    throw new BadRequest(`the body is not a ${VERSION} envelope`);
  }
  const request = envelope["request"];
  const signature = envelope["signature"] ?? undefined;
  if (typeof request !== "string") throw new BadRequest("the envelope's request is not a string");
  if (signature !== undefined && typeof signature !== "string") {
    throw new BadRequest("the envelope's signature is not a string");
  }
  await verify({ header, envelope: signature, keys, request, now });
  return request;
}

/** The request in a verified envelope. Throws BadRequest. */
export function parseRequest(text: string): IntrospectRequest | ExecuteRequest {
  const request = json(text);
  if (!isObject(request)) throw new BadRequest("the request is not an object");
  const protocol = request["protocol"];
  if (protocol !== undefined && protocol !== VERSION) {
    throw new BadRequest(`the request has the protocol ${shown(protocol, 50)}, this SDK speaks ${VERSION}`);
  }
  const type = request["type"];
  if (type === "introspect") return { type };
  if (type === "execute") return executeRequest(request);
  throw new BadRequest(`the request type ${shown(type, 50)} is not known`);
}

/** The body that answers an introspect request. */
export function introspectAnswer(definitions: readonly object[]): string {
  return JSON.stringify({ runr_workflow: VERSION, sdk: SDK, capabilities: CAPABILITIES, workflows: definitions });
}

/**
 * The body that answers an execute request; `ops` is the JSON of them, separated by commas. `askedAt`: when the sleep
 * among them was asked for, in unix milliseconds.
 */
export function opsAnswer(ops: string, askedAt: number | null): string {
  if (askedAt !== null) return `{"runr_workflow":"${VERSION}","asked_at":${askedAt},"ops":[${ops}]}`;
  return `{"runr_workflow":"${VERSION}","ops":[${ops}]}`;
}

/** The body that answers a dry request: an op, and the memoized steps that the code called, in order. */
export function dryAnswer(op: string, called: readonly object[]): string {
  return `{"runr_workflow":"${VERSION}","ops":[${op}],"called":${JSON.stringify(called)}}`;
}

/** An answer that is not 200. */
export function errorAnswer(status: number, message: string): Answer {
  return { status, body: JSON.stringify({ error: message }) };
}

function executeRequest(request: JsonObject): ExecuteRequest {
  const run = objectField(request, "run");
  const steps = Object.entries(objectField(request, "steps"));
  const attempt = run["attempt"] ?? 0;
  if (!steps.every(([, step]) => isObject(step))) throw new BadRequest("the request's steps are not objects");
  if (!Number.isInteger(attempt)) throw new BadRequest("run.attempt is not an integer");
  return {
    type: "execute",
    workflow: textField(request, "workflow"),
    runId: textField(run, "id"),
    attempt: attempt as number,
    source: textOrNull(run["source"]) ?? "api",
    startedAt: textOrNull(run["started_at"]),
    parentRunId: textOrNull(run["parent_run_id"]),
    replay: run["replay"] === true,
    test: run["test"] === true,
    event: objectField(request, "event") as unknown as Event,
    steps: new Map(steps as [string, StoredStep][]),
    maxOps: countField(request, "max_ops") ?? 1,
    budgetMs: countField(request, "budget_ms"),
    dry: request["dry"] === true,
  };
}

/** An optional positive integer; what is none is as good as absent. */
function countField(holder: JsonObject, name: string): number | null {
  const value = holder[name];
  return Number.isInteger(value) && (value as number) > 0 ? (value as number) : null;
}

function objectField(holder: JsonObject, name: string): JsonObject {
  const value = holder[name];
  if (!isObject(value)) throw new BadRequest(`the request's ${name} is missing or not an object`);
  return value;
}

function textField(holder: JsonObject, name: string): string {
  const value = holder[name];
  if (typeof value !== "string") throw new BadRequest(`the request's ${name} is missing or not a string`);
  return value;
}

function textOrNull(value: unknown): string | null {
  return typeof value === "string" && value !== "" ? value : null;
}

function isObject(value: unknown): value is JsonObject {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function decoded(body: Uint8Array): string {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    throw new BadRequest("the body is not UTF-8");
  }
}

function json(text: string): unknown {
  try {
    return JSON.parse(text) as unknown;
  } catch {
    throw new BadRequest("the body is not JSON");
  }
}
