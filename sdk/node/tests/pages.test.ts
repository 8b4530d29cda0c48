/** The TypeScript of the pages on how to do things: it compiles, and its workflows do what they say. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import type * as Testing from "../src/testing.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const HOW_TO = join(ROOT, "..", "..", "docs", "how-to");
const TSC = join(ROOT, "node_modules", "typescript", "bin", "tsc");
const STRICT = [
  "--strict",
  "--noUncheckedIndexedAccess",
  "--module",
  "nodenext",
  "--target",
  "es2022",
  "--types",
  "node",
];

/** The TypeScript of each page that has some, as one module. Pages whose blocks name their files are several. */
const pages = new Map<string, string>();
for (const name of readdirSync(HOW_TO)) {
  const text = readFileSync(join(HOW_TO, name), "utf8");
  const blocks = Array.from(text.matchAll(/^```ts\n(.*?)^```$/gms), ([, block = ""]) => block);
  if (blocks.length > 0 && !blocks[0]?.startsWith("// ")) pages.set(name.replace(/\.md$/, ""), blocks.join("\n"));
}

const user = mkdtempSync(join(tmpdir(), "runr-pages-"));
const installed = join(user, "node_modules", "@runr", "workflows");
let testing: typeof Testing;

before(async () => {
  mkdirSync(installed, { recursive: true });
  cpSync(join(ROOT, "package.json"), join(installed, "package.json"));
  execFileSync(process.execPath, [TSC, "-p", "tsconfig.json", "--outDir", join(installed, "dist")], { cwd: ROOT });
  symlinkSync(join(ROOT, "node_modules", "@types"), join(user, "node_modules", "@types"));
  writeFileSync(join(user, "package.json"), '{"type": "module"}');
  for (const [name, text] of pages) writeFileSync(join(user, `${name}.ts`), text);
  const files = [...pages.keys()].map((name) => `${name}.ts`);
  execFileSync(process.execPath, [TSC, ...STRICT, ...files], { cwd: user });
  testing = (await import(pathToFileURL(join(installed, "dist", "testing.js")).href)) as typeof Testing;
});

after(() => rmSync(user, { recursive: true }));

type Play = (engine: Testing.TestEngine) => Promise<unknown>;

/** What a page's workflow comes to. */
const STORIES: readonly (readonly [page: string, play: Play, wanted: unknown])[] = [
  [
    "steps",
    async (engine) => (await engine.run("welcome", { email: "a@b.c" })).output,
    ["intro to acc-a@b.c", "tips to acc-a@b.c"],
  ],
  ["retries-and-errors", async (engine) => (await engine.run("pay", { card: "c-1" })).output, "charged c-1"],
  [
    "retries-and-errors",
    async (engine) => (await engine.run("pay", { card: "stolen" })).output,
    "released 12A: the card is blocked",
  ],
  [
    "sleep",
    async (engine) => {
      await engine.run("remind", { due: "2026-03-01T09:00:00Z" });
      return engine.now.toISOString();
    },
    "2026-03-01T09:00:00.000Z",
  ],
  ["wait-for-events", async (engine) => (await engine.run("ship", { order_id: "o-1" })).output, "lost"],
  [
    "wait-for-events",
    async (engine) => {
      for (const [order_id, carrier] of [
        ["o-2", "dhl"],
        ["o-1", "pigeon"],
        ["o-1", "ups"],
      ]) {
        await engine.send("order.shipped", { order_id, carrier }, { after: "1d" });
      }
      return (await engine.run("ship", { order_id: "o-1" })).output;
    },
    "ups",
  ],
  ["send-events", async (engine) => (await engine.run("close-day", { shop: "s" })).output, 1],
  ["invoke", async (engine) => (await engine.run("bill", { prices: [1, 2] })).output, 3],
  ["invoke", async (engine) => (await engine.run("bill", { prices: null })).output, -1],
  [
    "idempotency",
    async (engine) => {
      await engine.run("refund", { payment_id: "p-1" });
      await engine.run("refund", { payment_id: "p-1" });
      return [engine.runs.length, engine.runs[0]?.output];
    },
    [1, "refunded p-1"],
  ],
  [
    "cancel",
    async (engine) => {
      const run = await engine.start("deliver", { order_id: "o-1" });
      await engine.send("order.cancelled", { order_id: "o-1" });
      const late = await engine.run("deliver", { order_id: "o-2" });
      return [run.status, late.output];
    },
    ["cancelled", "delivered"],
  ],
  [
    "cron",
    async (engine) => {
      const event = { name: "runr/cron", data: { scheduled_at: "9:00" } };
      return (await engine.run("daily-report", null, { event })).output;
    },
    "everything before 9:00",
  ],
  ["concurrency", async (engine) => (await engine.run("sync-customer", { customer_id: "c-1" })).output, "pushed c-1"],
  [
    "delayed-starts",
    async (engine) => (await engine.run("remind", { user: "u-1" }, { delay: "2h" })).output,
    "mail to u-1",
  ],
  ["queue", async (engine) => (await engine.run("charge", { order_id: "o-1", cents: 1250 })).output, "o-1: 1250"],
  ["retry-and-replay", async (engine) => (await engine.run("order", { order_id: "o-1" })).output, "charged r-o-1"],
  [
    "deploy-changed-code",
    async (engine) => {
      const before = await engine.run("order", { order_id: "o-1" });
      await engine.advance("365d");
      const after = await engine.run("order", { order_id: "o-2" });
      return [before, after].map(({ output, timeline }) => [output, timeline.of("insure").length]);
    },
    [
      ["shipped r-o-1", 0],
      ["shipped r-o-2", 1],
    ],
  ],
  ["checkpoint", async (engine) => (await engine.run("import", { rows: ["a", "bc"] })).output, 3],
];

for (const [page, play, wanted] of STORIES) {
  test(`docs/how-to/${page}.md: ${JSON.stringify(wanted)}`, async () => {
    const { wf } = await import(pathToFileURL(join(user, `${page}.js`)).href);
    assert.deepEqual(await play(new testing.TestEngine(wf, { begins: "2026-01-01T00:00:00Z" })), wanted);
  });
}

test("every page with TypeScript has its story", () => {
  assert.deepEqual([...new Set(STORIES.map(([page]) => page))].sort(), [...pages.keys()].sort());
});
