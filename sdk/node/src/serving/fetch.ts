/** The fetch API: a Request to a Response. */

import { answerHeaders } from "../headers.js";
import { type Answer, errorAnswer } from "../protocol.js";
import { BodyTooLarge } from "../refusal.js";
import { BodyCollector } from "./body.js";
import type { Handle } from "./handle.js";

/** Answers a request on whatever path. Never rejects. */
export async function answerFetch(handle: Handle, request: Request): Promise<Response> {
  const headers = answerHeaders(request.headers);
  if (request.method !== "POST") {
    const { status, body } = errorAnswer(405, "engine requests are POST");
    return new Response(body, { status, headers: { ...headers, Allow: "POST" } });
  }
  const { status, body } = await answer(handle, request);
  return new Response(body, { status, headers });
}

async function answer(handle: Handle, request: Request): Promise<Answer> {
  let body: Uint8Array;
  try {
    body = await bodyOf(request);
  } catch (error) {
    return error instanceof BodyTooLarge
      ? errorAnswer(error.status, error.message)
      : errorAnswer(400, "the body could not be read");
  }
  return handle(body, request.headers);
}

async function bodyOf(request: Request): Promise<Uint8Array> {
  const collector = new BodyCollector(request.headers.get("content-length"));
  const reader = request.body?.getReader();
  if (reader === undefined) return collector.whole();
  try {
    for (let part = await reader.read(); !part.done; part = await reader.read())
      collector.add(part.value as Uint8Array);
  } catch (error) {
    await reader.cancel().catch(() => undefined);
    throw error;
  }
  return collector.whole();
}
