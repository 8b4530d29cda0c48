/**
 * The entries that need nothing of Node, in a runtime that has only what the web has: no process, no Buffer, and no
 * module that is not of the package. Run with --experimental-vm-modules; says what came of it on stdout.
 */

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import vm from "node:vm";
import type * as Client from "../src/client.js";
import type * as Fetch from "../src/fetch.js";
import type * as Testing from "../src/testing.js";
import { KEY, NOW, executeText, seal } from "./engine.js";

const WEB = [
  ...["AbortController", "AbortSignal", "Headers", "Request", "Response", "ReadableStream", "URL", "URLSearchParams"],
  ...["TextDecoder", "TextEncoder", "atob", "btoa", "clearTimeout", "console", "crypto", "fetch", "performance"],
  ...["queueMicrotask", "setTimeout", "structuredClone", "DOMException"],
] as const;
const web = globalThis as unknown as Record<string, unknown>;
const context = vm.createContext(Object.fromEntries(WEB.map((name) => [name, web[name]])));
const modules = new Map<string, any>();
// The types of Node 20 do not have what --experimental-vm-modules adds.
const { SourceTextModule } = vm as unknown as { SourceTextModule: new (source: string, options: object) => any };

function moduleAt(url: URL): any {
  const known = modules.get(url.href);
  if (known !== undefined) return known;
  const made = new SourceTextModule(readFileSync(url, "utf8"), { context, identifier: url.href });
  modules.set(url.href, made);
  return made;
}

async function imported<T>(name: string): Promise<T> {
  const module = moduleAt(new URL(`../src/${name}`, import.meta.url));
  await module.link((specifier: string, from: { identifier: string }) => {
    assert.match(specifier, /^\.\.?\//, `${from.identifier} imports ${specifier}`);
    return moduleAt(new URL(specifier, from.identifier));
  });
  await module.evaluate();
  return module.namespace as T;
}

assert.deepEqual(
  vm.runInContext("[typeof process, typeof Buffer, typeof AsyncLocalStorage]", context).join(),
  "undefined,undefined,undefined",
);
const { Workflows } = await imported<typeof Fetch>("fetch.js");
const lines: unknown[] = [];
const logger = {
  debug: () => 0,
  info: () => 0,
  warn: (line: unknown) => lines.push(line),
  error: (line: unknown) => lines.push(line),
};
const wf = new Workflows({ signingKey: KEY, clock: () => NOW, logger });
wf.workflow("w", {}, async (_ctx, step) => {
  const pair = await Promise.all([step.run("a", async () => 1), step.run("b", () => 2)]);
  return pair;
});
wf.workflow("nested", {}, async (_ctx, step) =>
  step.run("outer", async () => {
    await step.run("inner", () => 1);
  }),
);

async function ask(memo: object, more: object): Promise<any[]> {
  const { body, headers } = await seal(executeText(memo as never, more));
  const response = await wf.fetchHandler(new Request("https://a.test/", { method: "POST", body, headers }));
  const answer = (await response.json()) as { ops: any[] };
  assert.equal(response.status, 200, JSON.stringify(answer));
  return answer.ops;
}
const ops = await ask({}, { max_ops: 5 });
assert.deepEqual(
  ops.map(({ op, output }) => [op, output]),
  [
    ["step_completed", 1],
    ["step_completed", 2],
    ["run_completed", [1, 2]],
  ],
);
const [nested] = await ask({}, { workflow: "nested" });
assert.equal(nested.error.name, "NestedStepError");

const { Client: Made } = await imported<typeof Client>("client.js");
const fetch = async (): Promise<Response> => new Response('{"id":"01RUN"}', { status: 201 });
const run = await new Made({ url: "https://api.test", token: "t", fetch }).start("w", { key: "k" });
assert.deepEqual([run.id, run.isNew], ["01RUN", true]);

const { TestEngine } = await imported<typeof Testing>("testing.js");
assert.deepEqual(JSON.stringify((await new TestEngine(wf).run("w")).output), "[1,2]");
process.stdout.write(`${modules.size > 30}\n`);
