// Serves the programs of the page about web frameworks: each request of the engine comes in by the next of their doors.

import { createServer } from "node:http";

const { wf } = await import("./hello.js");
const { POST } = await import("./next-route.js");
const { default: module } = await import("./module.js");
const { server: listening } = await import("./node-http.js");
const { answer } = await import("./transport.js");
const { default: hono } = await import("./hono.js");
const { app: express } = await import("./express.js");

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

function byFetch(handler) {
  return async (request, response) => {
    const { method, headers } = request;
    const answered = await handler(
      new Request("http://localhost/api/workflows", { method, headers, body: await body(request) }),
    );
    response.writeHead(answered.status, Object.fromEntries(answered.headers)).end(await answered.text());
  };
}

const doors = {
  next: byFetch(POST),
  module: byFetch(module.fetch),
  node(request, response) {
    request.url = "/api/workflows";
    listening.emit("request", request, response);
  },
  async transport(request, response) {
    const { status, text, headers } = await answer(await body(request), request.headers);
    response.writeHead(status, headers).end(text);
  },
  hono: byFetch((request) => hono.fetch(request)),
  express(request, response) {
    request.url = "/api/workflows";
    express(request, response);
  },
};
const names = Object.keys(doors);

let turn = 0;
const server = createServer((request, response) => {
  const name = names[turn++ % names.length];
  console.log(`${wf.definitions.length} ${name}`);
  void doors[name](request, response);
});
server.listen(0, "127.0.0.1", () =>
  process.stderr.write(`serving workflows hello on http://127.0.0.1:${server.address().port}\n`),
);
process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
});
