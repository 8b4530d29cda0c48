/** What tsc tells of a call that does not fit: the field and the name that are wrong, not another way to call it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdtempSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TSC = join(ROOT, "node_modules", "typescript", "bin", "tsc");

const BEFORE = `
  import { Client } from "./src/client.js";
  import { Workflows } from "./src/index.js";
  import { TestEngine } from "./src/testing.js";

  type Events = { "order.created": { id: string; total: number }; "order.shipped": { id: string; carrier: string } };
  const wf = new Workflows<Events>();
  const order = wf.workflow("order", { triggers: [{ event: "order.created" }] }, async () => 1);
  const client = new Client<Events>();
  const engine = new TestEngine(wf);
  declare const step: Parameters<Parameters<typeof wf.workflow>[2]>[1];
`;

const MISSING = "Property 'total' is missing in type '{ id: string; }' but required in type '{ id: string; total: number; }'";
const CARRIER = "Property 'carrier' is missing in type '{ id: string; }'";
const NAME = `Type '"order.shiped"' is not assignable to type '"order.created" | "order.shipped"'`;

const CALLS: [call: string, told: string][] = [
  ['client.start(order, { data: { id: "o" } })', MISSING],
  ['client.start(order, { data: { id: "o", total: "1" } })', "Type 'string' is not assignable to type 'number'"],
  ['client.start(order, { data: { id: "o", total: 1 }, tag: [] })', "'tag' does not exist in type 'StartOptions<"],
  ['client.send({ name: "order.shiped", data: { id: "o", carrier: "c" } })', NAME],
  ['client.send({ name: "order.shipped", data: { id: "o" } })', CARRIER],
  ['step.invoke("i", { workflow: order, data: { id: "o" } })', MISSING],
  ['step.invoke("i", { workflow: order, timeuot: "1h" })', "'timeuot' does not exist in type '{ workflow: Workflow<"],
  ['step.sendEvent("s", { name: "order.shiped", data: { id: "o", carrier: "c" } })', NAME],
  ['step.sendEvent("s", { name: "order.shipped", data: { id: "o" } })', CARRIER],
  ['engine.run(order, { id: "o" })', MISSING],
  ['engine.start(order, { id: "o" })', MISSING],
  ['engine.run(order, { id: "o", total: 1 }, { fault: [] })', "'fault' does not exist in type 'StartOptions'"],
];

test("tsc names what is wrong with a call", { timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "runr-messages-"));
  try {
    for (const name of ["src", "node_modules", "package.json"]) symlinkSync(join(ROOT, name), join(folder, name));
    const first = BEFORE.split("\n").length;
    writeFileSync(join(folder, "calls.ts"), [BEFORE, ...CALLS.map(([call]) => `void ${call};`)].join("\n"));
    const strict = ["--strict", "--noEmit", "--module", "nodenext", "--target", "es2022", "--types", "node"];
    const options = ["--lib", "es2022,es2024.string", "--pretty", "false", "--preserveSymlinks"];
    const { stdout } = spawnSync(process.execPath, [TSC, ...strict, ...options, "calls.ts"], {
      cwd: folder,
      encoding: "utf8",
    });
    const told = new Map<number, string>();
    for (const fault of stdout.split(/^(?=\S+\(\d+,)/m)) {
      assert.match(fault, /^calls\.ts\(/);
      told.set(Number(/\((\d+),/.exec(fault)?.[1]), fault);
    }
    assert.equal(told.size, CALLS.length, stdout);
    for (const [place, [call, words]] of CALLS.entries()) {
      const fault = told.get(first + place + 1) ?? "";
      assert.ok(fault.includes(words), `${call}\n${fault}`);
    }
  } finally {
    rmSync(folder, { recursive: true });
  }
});
