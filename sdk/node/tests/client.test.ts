/** The client against an API that answers as it is told. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { ApiError, ApiUnreachable, Client, type ClientOptions, ResultTimeout, RunFailed } from "../src/client.js";
import { encryption } from "./encryption.js";
import { registry } from "./engine.js";

interface Asked {
  method: string;
  path: string;
  headers: Record<string, string>;
  body: any;
}

type Answer = Response | Error | "hangs" | ((asked: Asked) => Response);

const json = (status: number, body: unknown, headers = {}): Response =>
  new Response(JSON.stringify(body), { status, headers });

const run = { id: "01RUN", status: "queued", event: null, output: null };

function problem(status: number, code: string, errors: object[] = [], headers = {}): Response {
  const type = `https://workflows.runr.dev/problems/${code}`;
  return json(status, { type, title: code, status, detail: `it is ${code}`, errors, trace_id: "t1" }, headers);
}

/** A client of an API that gives these answers; what it was asked. */
function api(answers: Answer[], options: ClientOptions = {}): { client: Client; asked: Asked[] } {
  const asked: Asked[] = [];
  const fetch: typeof globalThis.fetch = async (url, init) => {
    const { pathname, search } = new URL(String(url));
    const body = init?.body == null ? undefined : JSON.parse(String(init.body));
    asked.push({ method: init?.method ?? "", path: pathname + search, headers: init?.headers as any, body });
    const answer = answers.shift() ?? assert.fail(`asked once too often: ${JSON.stringify(asked)}`);
    if (answer === "hangs") {
      return new Promise((_resolve, reject) => {
        init?.signal?.addEventListener("abort", () => reject(new DOMException("aborted", "AbortError")));
      });
    }
    if (answer instanceof Error) throw answer;
    return typeof answer === "function" ? answer(asked.at(-1) as Asked) : answer;
  };
  return { client: new Client({ url: "https://api.test/api/", token: "tok", fetch, ...options }), asked };
}

const sent = (more = {}): object => ({
  id: "01EV",
  name: "a",
  duplicate: false,
  runs: [],
  resumed: 0,
  cancelled: 0,
  ...more,
});

test("an event is sent with what it has, and gets an id where it has none", async () => {
  const { client, asked } = api(
    [
      json(200, { ids: ["01EV"], events: [sent({ runs: ["01RUN"] })] }),
      json(200, { ids: ["01EV", "01EW"], events: [sent({ duplicate: true }), sent({ id: "01EW" })] }),
    ],
    { tenant: "acme" },
  );
  const one = await client.send({ name: "a", data: { n: 1 } }, { test: true });
  const two = await client.send([
    { name: "a", id: "mine", ts: new Date(5) },
    { name: "b", data: {} },
  ]);

  assert.deepEqual([one.runs, two.map(({ duplicate }) => duplicate)], [["01RUN"], [true, false]]);
  const [first, second] = asked;
  assert.deepEqual([first?.method, first?.path], ["POST", "/api/events?test=1"]);
  assert.equal(first?.headers["Authorization"], "Bearer tok");
  assert.equal(first?.headers["X-Tenant-ID"], "acme");
  assert.deepEqual({ ...first?.body[0], id: "" }, { name: "a", data: { n: 1 }, id: "" });
  assert.match(first?.body[0].id, /^[0-9a-f-]{36}$/);
  assert.deepEqual(second?.body[0], { name: "a", data: {}, id: "mine", ts: 5 });
});

test("a request that may be made twice is made again, with the same ids", async () => {
  const gone = new TypeError("fetch failed");
  const { client, asked } = api([
    gone,
    problem(503, "unavailable"),
    json(200, { ids: ["01EV"], events: [sent({ duplicate: true })] }),
    gone,
    json(201, run),
  ]);
  const event = await client.send({ name: "a" });
  const started = await client.start("w", { key: "k" });

  assert.deepEqual([event.duplicate, started.id, started.isNew], [false, "01RUN", true]);
  assert.equal(new Set(asked.slice(0, 3).map(({ body }) => body[0].id)).size, 1);
  assert.deepEqual(asked[4]?.body, { data: {}, idempotency_key: "k" });
});

test("a start is made again only where it starts one run", async () => {
  const workflows = registry();
  const plain = workflows.workflow("plain", {}, () => 1);
  const keyed = workflows.workflow("keyed", { idempotency: "event.data.id" }, () => 1);
  const gone = new TypeError("fetch failed");
  const { client, asked } = api([
    gone,
    json(201, run),
    gone,
    json(200, run),
    gone,
    problem(429, "rate-limited"),
    json(201, run),
  ]);

  await client.start(plain);
  const existing = await client.start(keyed, { data: { id: 1 } });
  await assert.rejects(client.start("by-name"), ApiUnreachable);
  await client.start("by-name", { delay: "10m", tags: ["a"], test: true });

  assert.equal(existing.isNew, false);
  assert.equal(asked[0]?.body.idempotency_key, asked[1]?.body.idempotency_key);
  assert.equal(typeof asked[0]?.body.idempotency_key, "string");
  assert.deepEqual([asked[2]?.body, asked[4]?.body], [{ data: { id: 1 } }, { data: {} }]);
  assert.equal(asked.length, 7);
  assert.deepEqual(asked[6]?.path, "/api/projects/default/workflows/by-name/runs");
  assert.deepEqual(asked[6]?.body, { data: {}, delay: "10m", tags: ["a"], test: true });
});

test("an error says what the API has said", async () => {
  const fault = { path: "events[0].name", message: "names under runr/ are reserved" };
  const { client } = api([
    problem(422, "invalid-input", [fault]),
    new Response("<html>no gateway</html>", { status: 403, headers: { "x-trace-id": "t2" } }),
    problem(409, "conflict"),
  ]);
  const caught = async (call: Promise<unknown>): Promise<ApiError> => {
    const error = await call.then(
      () => assert.fail("no error"),
      (error: unknown) => error,
    );
    assert.ok(error instanceof ApiError);
    return error;
  };
  const refused = await caught(client.send({ name: "runr/x" }));
  const html = await caught(client.run("r").get());
  const conflict = await caught(client.run("r").cancel());

  assert.deepEqual([refused.status, refused.code, refused.field], [422, "invalid-input", "events[0].name"]);
  assert.deepEqual([refused.message, refused.errors, refused.traceId], ["it is invalid-input", [fault], "t1"]);
  assert.deepEqual([html.status, html.code, html.field, html.traceId], [403, "unknown", null, "t2"]);
  assert.match(html.message, /the API answered with 403: <html>/);
  assert.deepEqual([conflict.code, conflict.field], ["conflict", null]);
});

test("retries end, and what may not be made twice is not", async () => {
  const gone = (): Answer[] => Array.from({ length: 3 }, () => problem(503, "unavailable"));
  const { client, asked } = api(
    [...gone(), ...gone().slice(2), problem(429, "rate-limited", [], { "retry-after": "0" }), json(201, run)],
    {
      retries: 2,
    },
  );

  await assert.rejects(client.run("r").get(), { status: 503, code: "unavailable" });
  await assert.rejects(client.run("r").replay(), { status: 503 });
  assert.equal((await client.run("r").replay({ fromStep: "b", data: { n: 1 } })).id, "01RUN");
  assert.equal(asked.length, 6);
  assert.deepEqual(asked[5]?.body, { from_step: "b", data: { n: 1 } });
});

test("a result is waited for, as long as it takes", async () => {
  const active = { id: "r", status: "waiting", ended: false, output: null, error: null };
  const { client, asked } = api([
    json(202, active),
    new TypeError("fetch failed"),
    json(200, { ...active, status: "completed", ended: true, output: { n: 1 } }),
    json(200, { ...active, status: "failed", ended: true, error: { name: "E", message: "no", stack: null } }),
    json(200, { ...active, status: "cancelled", ended: true }),
    json(202, active),
    json(202, active),
  ]);

  assert.deepEqual(await client.run("r").result(), { n: 1 });
  assert.equal(asked[0]?.path, "/api/runs/r/result?wait=30");
  await assert.rejects(client.run("r").result(), (error) => {
    assert.ok(error instanceof RunFailed);
    assert.deepEqual([error.status, error.error?.name, error.message], ["failed", "E", "run r failed: no"]);
    return true;
  });
  await assert.rejects(client.run("r").result(), { message: "run r cancelled", error: null });
  await assert.rejects(client.run("r").result({ timeout: "50ms" }), ResultTimeout);
  assert.equal(asked[5]?.path, "/api/runs/r/result?wait=1");
});

test("an abort rejects with its reason, before, in and between requests", async () => {
  const reason = new Error("enough");
  const { client, asked } = api(["hangs", new TypeError("fetch failed")]);
  const before = AbortSignal.abort(reason);
  const during = new AbortController();
  const between = new AbortController();

  await assert.rejects(client.run("r").get({ signal: before }), reason);
  assert.equal(asked.length, 0);
  const call = client.run("r").result({ signal: during.signal });
  setTimeout(() => during.abort(reason), 5);
  await assert.rejects(call, reason);
  const other = client.send({ name: "a" }, { signal: between.signal });
  setTimeout(() => between.abort(reason), 20);
  await assert.rejects(other, reason);
  assert.equal(asked.length, 2);
});

test("an answer that does not come is no answer", async () => {
  const { client } = api(["hangs"], { retries: 0, timeout: "5ms" });

  await assert.rejects(
    client.run("r").get(),
    /^ApiUnreachable: GET https:\/\/api.test\/api\/runs\/r: no answer in time/,
  );
});

test("lists come page by page, as they are read", async () => {
  const { client, asked } = api([
    json(200, { data: [{ id: "1" }, { id: "2" }], next_cursor: "c+1" }),
    json(200, { data: [{ id: "3" }], next_cursor: null }),
    json(200, { data: [{ id: "e" }], next_cursor: "more" }),
  ]);
  const ids: string[] = [];
  for await (const { id } of client.runs({ workflow: "w", status: ["failed", "timed_out"], pageSize: 2 })) ids.push(id);
  for await (const { id } of client.events({ name: "order.", from: new Date(0) })) {
    ids.push(id);
    break;
  }

  assert.deepEqual(ids, ["1", "2", "3", "e"]);
  assert.deepEqual(
    asked.map(({ path }) => path),
    [
      "/api/projects/default/runs?workflow=w&status=failed&status=timed_out&limit=2",
      "/api/projects/default/runs?workflow=w&status=failed&status=timed_out&limit=2&cursor=c%2B1",
      "/api/events?name=order.&from=1970-01-01T00%3A00%3A00.000Z",
    ],
  );
});

test("middleware encodes what is sent and decodes what is read", async () => {
  const middleware = [await encryption(new Uint8Array(32))];
  const { encode } = middleware[0] ?? {};
  const output = await encode?.({ ok: true }, "run");
  const detail = {
    ...run,
    status: "completed",
    output,
    event: { id: "e", name: "a", data: await encode?.({ order_id: "o", card: 1 }, "event"), ts: 1 },
    steps: [
      { id: "a", kind: "run", status: "completed", output: await encode?.(1, "step") },
      { id: "b", kind: "invoke", status: "completed", output },
      { id: "c", kind: "wait_for_event", status: "completed", output: { data: await encode?.({ n: 2 }, "event") } },
      { id: "d", kind: "sleep", status: "completed", output: null },
      { id: "e", kind: "run", status: "failed", output: null },
    ],
  };
  const { client, asked } = api(
    [json(201, run), json(200, { status: "completed", ended: true, output }), json(200, detail)],
    { middleware },
  );
  const started = await client.start("w", { data: { order_id: "o", card: "4111" } });

  assert.deepEqual(Object.keys(asked[0]?.body.data), ["order_id", "sealed"]);
  assert.deepEqual(await started.result(), { ok: true });
  const found = await started.get();
  assert.deepEqual([found.output, found.event?.data], [{ ok: true }, { order_id: "o", card: 1 }]);
  const outputs = found.steps.map((step) => step.output);
  assert.deepEqual(outputs, [1, { ok: true }, { data: { n: 2 } }, null, null]);
});

test("a client needs a URL and a token", () => {
  assert.throws(() => new Client({ token: "t" }), /^SettingsError: url: that of the API, like .*RUNR_API_URL/);
  assert.throws(() => new Client({ url: "api.test", token: "t" }), /^SettingsError: url: /);
  assert.throws(() => new Client({ url: "https://api.test" }), /^SettingsError: token: one of the API, or RUNR_TOKEN/);
});
