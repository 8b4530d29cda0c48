/** What needs nothing of Node. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";

test("the entries for fetch, client and tests run where nothing of Node is", () => {
  const script = fileURLToPath(new URL("bare-runtime.js", import.meta.url));
  const said = execFileSync(process.execPath, ["--experimental-vm-modules", "--no-warnings", script], {
    encoding: "utf8",
  });

  assert.equal(said, "true\n");
});
