/** The package as users get it. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readFileSync, readdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { VERSION } from "../src/index.js";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const TSC = join(ROOT, "node_modules", "typescript", "bin", "tsc");
const MADE_OF = ["package.json", "tsconfig.json", "README.md", "src", "tests"];

/** A copy to build in, so that nothing else meets a half-built package. */
function copied(folder: string): string {
  const copy = join(folder, "sdk");
  for (const name of MADE_OF) cpSync(join(ROOT, name), join(copy, name), { recursive: true });
  symlinkSync(join(ROOT, "node_modules"), join(copy, "node_modules"));
  return copy;
}

/** What npm says: the npm that runs these tests, if one does. */
function npm(command: string[], cwd: string): string {
  const own = process.env["npm_execpath"];
  const [program, first]: [string, string[]] = own === undefined ? ["npm", []] : [process.execPath, [own]];
  return execFileSync(program, [...first, ...command], { cwd, encoding: "utf8" });
}

/** The TypeScript of the README, by the file name in the first line of each block. */
function pages(): Map<string, string> {
  const readme = readFileSync(join(ROOT, "README.md"), "utf8");
  const blocks = Array.from(readme.matchAll(/^```ts\n(.*?)^```$/gms), ([, text = ""]) => text);
  return new Map(blocks.map((text) => [/^\/\/ (\S+\.ts)\n/.exec(text)?.[1] ?? assert.fail(text), text]));
}

test("the version is in two places and the same", () => {
  const { version, dependencies } = JSON.parse(readFileSync(join(ROOT, "package.json"), "utf8"));

  assert.deepEqual([version, dependencies], [VERSION, undefined]);
});

test("it holds what is meant, and a user's strict code compiles and runs with it", { timeout: 120_000 }, () => {
  const folder = mkdtempSync(join(tmpdir(), "runr-package-"));
  try {
    const copy = copied(folder);
    const packed = npm(["pack", "--json", "--pack-destination", folder], copy);
    const [{ filename, files }] = JSON.parse(packed.slice(packed.indexOf("[\n")));
    const sources = readdirSync(join(copy, "src"), { recursive: true, encoding: "utf8" });
    const modules = sources.filter((name) => name.endsWith(".ts")).map((name) => `dist/${name.slice(0, -3)}`);
    const wanted = ["README.md", "package.json", ...modules.flatMap((name) => [`${name}.js`, `${name}.d.ts`])];
    assert.deepEqual(files.map(({ path }: { path: string }) => path).sort(), wanted.sort());

    const user = join(folder, "user");
    const installed = join(user, "node_modules", "@runr", "workflows");
    mkdirSync(installed, { recursive: true });
    execFileSync("tar", ["-xzf", join(folder, filename), "-C", installed, "--strip-components=1"]);
    symlinkSync(join(ROOT, "node_modules", "@types"), join(user, "node_modules", "@types"));
    writeFileSync(join(user, "package.json"), '{"type": "module"}');
    const named = pages();
    assert.equal(named.size, 12);
    for (const [name, text] of named) writeFileSync(join(user, name), text);
    const strict = ["--strict", "--noUncheckedIndexedAccess", "--module", "nodenext", "--target", "es2022"];
    const ofNode = [...named.keys()].filter((name) => name !== "worker.ts");
    execFileSync(process.execPath, [TSC, ...strict, "--types", "node", ...ofNode], { cwd: user });
    // As for Workers: what is not of Node has no need of its types.
    const ofWeb = ["worker.ts", "client.ts", "orders.ts"];
    execFileSync(process.execPath, [TSC, ...strict, "--types", "", "--lib", "es2022,dom", ...ofWeb], { cwd: user });
    // Of its own: it would report to the runner of this test otherwise.
    const { NODE_TEST_CONTEXT: _, ...env } = process.env;
    const said = execFileSync(process.execPath, ["--test", "orders.test.js"], { cwd: user, encoding: "utf8", env });
    assert.match(said, /^# pass 5$/m);
    const parts = 'import("./parts.js").then(({ server }) => console.log(typeof server.stop));';
    assert.equal(execFileSync(process.execPath, ["-e", parts], { cwd: user, encoding: "utf8" }), "function\n");
  } finally {
    rmSync(folder, { recursive: true });
  }
});
