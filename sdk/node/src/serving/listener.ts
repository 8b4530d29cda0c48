/** A request of node:http, answered. */

import type { IncomingMessage, RequestListener, ServerResponse } from "node:http";
import { answerHeaders } from "../headers.js";
import { type Answer, errorAnswer } from "../protocol.js";
import { BodyTooLarge } from "../refusal.js";
import { BodyCollector } from "./body.js";
import type { Handle } from "./handle.js";

const LINGER_MS = 2000;

/** Answers requests on whatever path. `isClosing`: whether an answer is the last one of its connection. */
export function requestListener(handle: Handle, isClosing: () => boolean = () => false): RequestListener {
  return (request, response) => {
    void exchange(handle, request, response, isClosing);
  };
}

async function exchange(
  handle: Handle,
  request: IncomingMessage,
  response: ServerResponse,
  isClosing: () => boolean,
): Promise<void> {
  response.on("error", () => undefined);
  if (request.method !== "POST") {
    request.resume();
    send(request, response, errorAnswer(405, "engine requests are POST"), isClosing());
    return;
  }
  let body: Uint8Array;
  try {
    body = await bodyOf(request);
  } catch (error) {
    if (error instanceof BodyTooLarge) refuseRest(request, response, errorAnswer(error.status, error.message));
    else response.destroy();
    return;
  }
  send(request, response, await handle(body, request.headers), isClosing());
}

/** Rejects with BodyTooLarge, or with what broke the connection. */
function bodyOf(request: IncomingMessage): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const collector = new BodyCollector(request.headers["content-length"]);
    request.on("data", (chunk: Uint8Array) => {
      try {
        collector.add(chunk);
      } catch (error) {
        request.removeAllListeners("data");
        reject(error);
      }
    });
    request.on("end", () => resolve(collector.whole()));
    request.on("error", reject);
    request.on("close", () => reject(new Error("the client went away in the middle of a request")));
  });
}

function send(request: IncomingMessage, response: ServerResponse, { status, body }: Answer, isLast: boolean): void {
  response.writeHead(status, {
    ...answerHeaders(request.headers),
    "Content-Length": Buffer.byteLength(body),
    ...(status === 405 ? { Allow: "POST" } : {}),
    ...(isLast ? { Connection: "close" } : {}),
  });
  response.end(body);
}

/** Takes what the client still sends, for a moment, so that it can read the answer before the connection ends. */
function refuseRest(request: IncomingMessage, response: ServerResponse, answer: Answer): void {
  const { socket } = request;
  // What node:http does behind a last answer: it would drop what is unread, and with that the client would lose the answer.
  socket.destroySoon = () => void socket.end();
  request.on("end", () => socket.end());
  request.resume();
  send(request, response, answer, true);
  setTimeout(() => socket.destroy(), LINGER_MS).unref();
}
