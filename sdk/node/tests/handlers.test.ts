/** The fetch handler and the handler of function platforms. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { executeText, registry, seal } from "./engine.js";

const workflows = registry();
workflows.workflow("w", {}, async (_ctx, step) => step.run("a", () => "é"));

test("a Request is answered with a Response", async () => {
  const { body, headers } = await seal(executeText({}));
  const { fetchHandler } = workflows;
  const response = await fetchHandler(new Request("https://a.test/any", { method: "POST", body, headers }));
  const answer = (await response.json()) as { ops: [{ output: unknown }] };
  const got = await fetchHandler(new Request("https://a.test/"));
  const empty = await fetchHandler(new Request("https://a.test/", { method: "POST" }));

  assert.deepEqual([response.status, answer.ops[0].output], [200, "é"]);
  assert.equal(response.headers.get("x-runr-request-id"), headers["X-RunR-Request-Id"]);
  assert.equal(response.headers.get("content-type"), "application/json");
  assert.deepEqual([got.status, got.headers.get("allow"), empty.status], [405, "POST", 400]);
});

test("a body that is too large is refused before it is read, and while it is", async () => {
  const chunk = new Uint8Array(1024 * 1024);
  let pulled = 0;
  const endless = new ReadableStream({ pull: (to) => ((pulled += 1), to.enqueue(chunk)) });
  const read = { method: "POST", body: endless, duplex: "half" as const };
  const told = { method: "POST", body: "{}", headers: { "Content-Length": "99999999" } };

  assert.equal((await workflows.fetchHandler(new Request("https://a.test/", read))).status, 413);
  assert.ok(pulled < 70, `${pulled}`);
  assert.equal((await workflows.fetchHandler(new Request("https://a.test/", told))).status, 413);
});

test("a body that breaks off is refused", async () => {
  const broken = new ReadableStream({ pull: (to) => to.error(new Error("gone")) });
  const request = new Request("https://a.test/", { method: "POST", body: broken, duplex: "half" });

  assert.equal((await workflows.fetchHandler(request)).status, 400);
});

test("an event of a function platform may be an envelope, or hold one in whatever form", async () => {
  const { body, headers } = await seal(executeText({}));
  const text = new TextDecoder().decode(body);
  const envelope = JSON.parse(text) as Record<string, unknown>;
  const base64 = Buffer.from(body).toString("base64");
  const { handler } = workflows;
  const events = [
    envelope,
    text,
    body,
    { body: text, headers },
    { body: text },
    { body: envelope, headers: null },
    { body: base64, isBase64Encoded: true, headers: { ...headers, other: null } },
  ];
  for (const event of events) {
    const result = await handler(event, {});
    assert.equal(result.statusCode, 200, JSON.stringify(event));
    assert.equal(JSON.parse(result.body).ops[0].output, "é");
    const given = (event as { headers?: object }).headers ? "0123456789abcdef" : undefined;
    assert.equal(result.headers["X-RunR-Request-Id"], given);
  }
});

test("an event that holds no body is refused", async () => {
  for (const event of [null, undefined, 1, {}, { body: null }, { body: "%", isBase64Encoded: true }, [1]]) {
    assert.equal((await workflows.handler(event)).statusCode, 400, JSON.stringify(event));
  }
  const { body } = await seal(executeText({}));
  const changed = { body: Buffer.from(body).toString(), headers: { "x-runr-signature": "t=1,v1=0" } };
  assert.equal((await workflows.handler(changed)).statusCode, 401);
});
