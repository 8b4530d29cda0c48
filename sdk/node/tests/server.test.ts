/** The transports over HTTP. */

import assert from "node:assert/strict";
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { Agent, request as httpRequest } from "node:http";
import { type AddressInfo, type Socket, connect } from "node:net";
import { createInterface } from "node:readline";
import { test } from "node:test";
import { createServer } from "../src/node.js";
import { KEY, executeText, registry, seal } from "./engine.js";

type Reply = { status: number; headers: Record<string, unknown>; body: any };

function post(port: number, body: Uint8Array, headers: Record<string, string>, agent?: Agent): Promise<Reply> {
  return new Promise((resolve, reject) => {
    const options = { port, method: "POST", headers, ...(agent === undefined ? {} : { agent }) };
    const sent = httpRequest(options, (response) => {
      let text = "";
      response.setEncoding("utf8").on("data", (part: string) => (text += part));
      response.on("end", () => {
        resolve({ status: response.statusCode ?? 0, headers: response.headers, body: JSON.parse(text) });
      });
    });
    sent.on("error", reject).end(body);
  });
}

function waiting(): { until: Promise<void>; letGo: () => void } {
  let letGo = (): void => undefined;
  const until = new Promise<void>((resolve) => (letGo = resolve));
  return { until, letGo };
}

async function listening(body: () => unknown) {
  const workflows = registry();
  workflows.workflow("w", {}, async (_ctx, step) => step.run("a", body));
  const server = createServer(workflows).listen(0, "127.0.0.1");
  await once(server, "listening");
  return { server, port: (server.address() as AddressInfo).port };
}

test("requests are answered on a connection that is kept, with their ids", async () => {
  const { server, port } = await listening(() => 1);
  const agent = new Agent({ keepAlive: true, maxSockets: 1 });
  const { body, headers } = await seal(executeText({}));
  const sockets = new Set<Socket>();
  server.on("connection", (socket) => sockets.add(socket));

  for (const id of ["first", "second"]) {
    const reply = await post(port, body, { ...headers, "X-RunR-Request-Id": id }, agent);
    assert.deepEqual([reply.status, reply.body.ops[0].output, reply.headers["x-runr-request-id"]], [200, 1, id]);
    assert.equal(reply.headers["content-type"], "application/json");
  }
  const refused = await post(port, body, { "X-RunR-Request-Id": "third", "X-RunR-Signature": "t=1" }, agent);
  const strange = await post(port, body, { ...headers, "X-RunR-Request-Id": "a b" }, agent);

  assert.deepEqual([refused.status, refused.headers["x-runr-request-id"]], [401, "third"]);
  assert.equal(strange.headers["x-runr-request-id"], undefined);
  assert.equal(sockets.size, 1);
  agent.destroy();
  assert.equal(await server.stop(), true);
});

test("a body in chunks is read, another method refused, a body that is too large before it is sent", async () => {
  const { server, port } = await listening(() => 1);
  const { body, headers } = await seal(executeText({}));
  const base = `http://127.0.0.1:${port}/any/path`;

  const got = await fetch(base);
  assert.deepEqual([got.status, got.headers.get("allow")], [405, "POST"]);
  const stream = new Blob([body]).stream();
  const chunked = await fetch(base, { method: "POST", headers, body: stream, duplex: "half" });
  assert.equal(chunked.status, 200);
  const socket = connect(port, "127.0.0.1");
  socket.write("POST / HTTP/1.1\r\nHost: a\r\nX-RunR-Request-Id: big\r\nContent-Length: 67108865\r\n\r\n{");
  const [head] = (await once(socket.setEncoding("utf8"), "data")) as [string];
  assert.match(head, /^HTTP\/1.1 413 .*X-RunR-Request-Id: big.*Connection: close/s);
  socket.destroy();
  assert.equal(await server.stop(), true);
});

test("a client that goes away in the middle of its request or of the answer is no fault", async () => {
  const { until, letGo } = waiting();
  const begun = waiting();
  const { server, port } = await listening(async () => {
    begun.letGo();
    await until;
  });
  const { body, headers } = await seal(executeText({}));
  const half = connect(port, "127.0.0.1");
  await once(half, "connect");
  half.write("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\n{");
  const gone = httpRequest({ port, method: "POST", headers }).on("error", () => undefined);
  gone.end(body);
  await begun.until;
  half.destroy();
  gone.destroy();
  letGo();

  assert.equal(await server.stop(), true);
});

test("stopping finishes what is in flight, closes what is idle, and takes nothing more", async () => {
  const { until, letGo } = waiting();
  const begun = waiting();
  const { server, port } = await listening(async () => {
    begun.letGo();
    await until;
    return "finished";
  });
  const idle = connect(port, "127.0.0.1");
  await once(idle, "connect");
  const idleEnded = once(idle.resume(), "close");
  const { body, headers } = await seal(executeText({}));
  const agent = new Agent({ keepAlive: true });
  const reply = post(port, body, headers, agent);
  await begun.until;

  const stopped = server.stop();
  await idleEnded;
  await assert.rejects(post(port, body, headers), { code: "ECONNREFUSED" });
  letGo();

  const { status, body: answered, headers: answerHeaders } = await reply;
  assert.deepEqual([status, answered.ops[0].output, answerHeaders["connection"]], [200, "finished", "close"]);
  assert.equal(await stopped, true);
  agent.destroy();
});

test("what does not end within the grace is cut off", async () => {
  const begun = waiting();
  const { server, port } = await listening(() => {
    begun.letGo();
    return new Promise(() => undefined);
  });
  const { body, headers } = await seal(executeText({}));
  const cut = assert.rejects(post(port, body, headers), { code: "ECONNRESET" });
  await begun.until;

  assert.equal(await server.stop(0.01), false);
  await cut;
});

const APP = `
  import { Workflows } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
  const wf = new Workflows({ clock: () => 1700000000 });
  wf.workflow("w", {}, async (_ctx, step) => step.run("a", async () => {
    console.log("begun");
    await new Promise((resolve) => process.once("SIGTERM", resolve));
    return "after the signal";
  }));
  await wf.serve({ host: "127.0.0.1", port: Number(process.argv[1]) });
  console.log("served");
`;

function app(port: number): ChildProcess {
  const env = { ...process.env, RUNR_WORKFLOW_SIGNING_KEY: KEY };
  return spawn(process.execPath, ["--input-type=module", "-e", APP, String(port)], { env, stdio: "pipe" });
}

test("wf.serve says where it listens, and after SIGTERM finishes what is in flight", { timeout: 60_000 }, async () => {
  const child = app(0);
  const exit = once(child, "exit");
  assert.ok(child.stderr && child.stdout);
  const errors = createInterface(child.stderr);
  const lines = createInterface(child.stdout)[Symbol.asyncIterator]();
  const [announced] = (await once(errors, "line")) as [string];
  const port = Number(/^serving workflows w on http:\/\/127\.0\.0\.1:([0-9]+)$/.exec(announced)?.[1]);
  const { body, headers } = await seal(executeText({}));
  const reply = post(port, body, headers);
  assert.equal((await lines.next()).value, "begun");
  child.kill("SIGTERM");

  assert.equal((await reply).body.ops[0].output, "after the signal");
  const rest = [];
  for await (const line of { [Symbol.asyncIterator]: () => lines }) rest.push(line);
  assert.equal(rest.at(-1), "served");
  assert.deepEqual(await exit, [0, null]);
});

test("wf.serve refuses a port that is taken, with a sentence", async () => {
  const { server, port } = await listening(() => 1);
  const logger = { ...console, warn: () => undefined };

  await assert.rejects(registry({ logger }).serve({ host: "127.0.0.1", port }), /port [0-9]+ of 127.0.0.1 is taken/);
  await server.stop();
});
