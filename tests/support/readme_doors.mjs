// Serves the programs of the TypeScript SDK's README that are no server by themselves: DOOR says which of them.

import { createServer } from "node:http";

async function body(request) {
  const parts = [];
  for await (const part of request) parts.push(part);
  return Buffer.concat(parts);
}

const doors = {
  async parts() {
    const { server } = await import("./parts.js");
    return { server, workflows: "process-order" };
  },
  async handler() {
    const { handler } = await import("./parts.js");
    const server = createServer(async (request, response) => {
      const event = { body: (await body(request)).toString(), headers: request.headers };
      const { statusCode, headers, body: text } = await handler(event, {});
      response.writeHead(statusCode, headers).end(text);
    });
    return { server, workflows: "process-order" };
  },
  async worker() {
    const { default: worker } = await import("./worker.js");
    const env = { SIGNING_KEY: process.env.RUNR_WORKFLOW_SIGNING_KEY };
    delete process.env.RUNR_WORKFLOW_SIGNING_KEY;
    const server = createServer(async (request, response) => {
      const { method, headers } = request;
      const asked = new Request("https://worker.example.com/", { method, headers, body: await body(request) });
      const answered = await worker.fetch(asked, env);
      response.writeHead(answered.status, Object.fromEntries(answered.headers)).end(await answered.text());
    });
    return { server, workflows: "hello" };
  },
};

const { server, workflows } = await doors[process.env.DOOR]();
server.listen(0, "127.0.0.1", () =>
  process.stderr.write(`serving workflows ${workflows} on http://127.0.0.1:${server.address().port}\n`),
);
process.once("SIGTERM", () => {
  server.close();
  server.closeAllConnections();
});
