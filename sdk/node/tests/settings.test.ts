/** Settings that are wrong or missing: what is said of them, and how a program ends that does not catch it. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { Client } from "../src/client.js";
import { SettingsError, Workflows } from "../src/index.js";
import { createServer } from "../src/node.js";
import { keyDoubt } from "../src/signing-keys.js";
import { KEY, Lines, registry, seal } from "./engine.js";

const GARBAGE = "hunter2hunter2";
const INDEX = new URL("../src/index.js", import.meta.url).href;

/** Exit code and lines of stderr of a program that serves, with these variables and no others of the SDK. */
function served(options: string, variables: Record<string, string>): { code: number | null; lines: string[] } {
  const code = `
    import { Workflows } from ${JSON.stringify(INDEX)};
    const wf = new Workflows();
    wf.workflow("w", {}, () => 1);
    await wf.serve(${options});
  `;
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith("RUNR_") && name !== "PORT");
  const done = spawnSync(process.execPath, ["--input-type=module", "-e", code], {
    env: { ...Object.fromEntries(kept), ...variables },
    encoding: "utf8",
    timeout: 60_000,
  });
  return { code: done.status, lines: done.stderr.split("\n") };
}

test("a wrong port ends the program with a line that names the setting, and no stack", () => {
  const key = { RUNR_WORKFLOW_SIGNING_KEY: KEY };
  const wrong: [options: string, variables: Record<string, string>, told: string][] = [
    ["", { PORT: "http" }, 'SettingsError: PORT: a port from 0 to 65535, not "http"'],
    ["{ port: 70000 }", {}, "SettingsError: port: a port from 0 to 65535, not 70000"],
    ['{ port: "8000" }', {}, 'SettingsError: port: a port from 0 to 65535, not "8000"'],
  ];
  for (const [options, variables, told] of wrong) {
    const { code, lines } = served(options, { ...key, ...variables });
    assert.equal(code, 1);
    assert.equal(lines.filter((line) => line.includes(told)).length, 1, lines.join("\n"));
    assert.ok(!lines.some((line) => /^\s+at /.test(line)), lines.join("\n"));
  }
});

test("code can catch what is wrong with settings", async () => {
  await assert.rejects(new Workflows({ signingKey: KEY }).serve({ port: -1 }), SettingsError);
  assert.throws(() => new Client({ url: "ftp://x", token: "t" }), SettingsError);
  assert.ok(new SettingsError("wrong") instanceof TypeError);
});

test("a client says which setting is wrong, and never shows its token", () => {
  const options = { url: "http://127.0.0.1:1", token: "t" };
  const wrong: [wrong: object, told: RegExp][] = [
    [{ url: "http://" }, /^url: that of the API/],
    [{ url: "http://a b/" }, /^url: that of the API/],
    [{ token: "secret\n" }, /^token: it has blanks or characters that no header holds$/],
    [{ tenant: "a b" }, /^tenant: a slug like "default", not "a b"$/],
    [{ retries: -1 }, /^retries: an integer from 0, not -1$/],
    [{ timeout: "soon" }, /^timeout: "soon" is not a duration/],
  ];
  for (const [one, message] of wrong) {
    assert.throws(() => new Client({ ...options, ...one }), { name: "SettingsError", message });
  }
});

test("what is odd about a key is said, and the key is not", () => {
  const odd: [key: string, fault: string][] = [
    [GARBAGE, "it does not begin with wfsk_"],
    [`${KEY}\n`, "it has blanks or a line break around it"],
    [` ${KEY}`, "it has blanks or a line break around it"],
    [`"${KEY}"`, "it is in quotes"],
    [KEY.slice(0, -1), "it has only 47 characters, so a part may be missing"],
    ["wfsk_…", "it holds other characters"],
  ];
  for (const [key, fault] of odd) {
    const doubt = keyDoubt(key) ?? "";
    assert.ok(doubt.startsWith(`does not look like a signing key of an engine: ${fault} (`), doubt);
    assert.ok(!doubt.includes(key), doubt);
  }
  assert.deepEqual([keyDoubt(KEY), keyDoubt(""), keyDoubt(`${KEY}longer`)], [null, null, null]);
});

test("a key that looks like none is told once, before any request, and works", async () => {
  const logger = new Lines();
  const workflows = registry({ signingKey: KEY, signingKeyFallback: GARBAGE, logger });
  createServer(workflows);
  assert.equal(logger.all.length, 1);
  assert.match(String(logger.all[0]), /signingKeyFallback does not look like a signing key of an engine/);

  const { body, headers } = await seal('{"type":"introspect"}', GARBAGE);
  assert.equal((await workflows.handleRequest(body, headers)).status, 200);
  assert.equal((await workflows.handleRequest(body, headers)).status, 200);
  assert.equal(logger.all.length, 1);
  assert.ok(!JSON.stringify(logger.all).includes(GARBAGE));
});

test("a key of the environment is named by its variable, whenever it comes", async () => {
  const logger = new Lines();
  const workflows = new Workflows({ logger });
  process.env["RUNR_WORKFLOW_SIGNING_KEY"] = GARBAGE;
  try {
    const { body, headers } = await seal('{"type":"introspect"}', GARBAGE);
    assert.deepEqual(logger.all, []);
    await workflows.fetchHandler(new Request("http://w/", { method: "POST", body, headers }));
  } finally {
    delete process.env["RUNR_WORKFLOW_SIGNING_KEY"];
  }
  assert.match(String(logger.all[0]), /RUNR_WORKFLOW_SIGNING_KEY does not look like/);
});

test("what can be no key is refused at once", () => {
  for (const key of [new Uint8Array(8), 7, "\ud800"]) {
    const options = { signingKey: key as string };
    assert.throws(() => new Workflows(options), { name: "SettingsError", message: /^signingKey: / });
  }
});
