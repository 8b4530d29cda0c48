/** The W3C trace context of an invocation, as the engine sends it in headers (protocol section 1). */

const TRACEPARENT = /^(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$/;

/** The trace headers that `find` gives by name. Empty without a well-formed `traceparent`: W3C says to ignore it. */
export function traceContext(find: (name: string) => string | undefined): Readonly<Record<string, string>> {
  const traceparent = find("traceparent")?.trim();
  if (traceparent === undefined || !TRACEPARENT.test(traceparent)) return {};
  const tracestate = find("tracestate")?.trim();
  return tracestate ? { traceparent, tracestate } : { traceparent };
}
