import type { RequestHeaders } from "../headers.js";
import type { Answer } from "../protocol.js";

/** What a transport calls with a body and its headers. Never rejects. */
export type Handle = (body: Uint8Array, headers: RequestHeaders) => Promise<Answer>;
