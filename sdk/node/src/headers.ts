/** Headers of requests and answers, whatever a transport gives (protocol section 1). */

const REQUEST_ID_HEADER = "x-runr-request-id";
const REQUEST_ID = /^[0-9A-Za-z._~+/=-]{1,128}$/;

/** Headers by their names, in any case: an object as node:http has it, a Map, or Headers of the fetch API. */
export type RequestHeaders =
  Readonly<Record<string, string | readonly string[] | undefined>> | Iterable<readonly [string, string]>;

/** Headers by their names in lower case; of repeated ones the first. */
export function lowerNames(headers: RequestHeaders): Map<string, string> {
  const named = new Map<string, string>();
  const pairs = Symbol.iterator in headers ? (headers as Iterable<readonly [string, string]>) : Object.entries(headers);
  for (const [name, value] of pairs) {
    const lower = name.toLowerCase();
    if (value !== undefined && !named.has(lower))
      named.set(lower, typeof value === "string" ? value : value.join(", "));
  }
  return named;
}

/**
 * The headers of the answer to a request with these headers, whatever its status.
 *
 * The engine keeps a connection only if each answer on it repeats the id of its request.
 */
export function answerHeaders(headers: RequestHeaders): Record<string, string> {
  const requestId = lowerNames(headers).get(REQUEST_ID_HEADER);
  const type = { "Content-Type": "application/json" };
  return requestId !== undefined && REQUEST_ID.test(requestId) ? { ...type, "X-RunR-Request-Id": requestId } : type;
}
