/** What the end of an invocation leaves behind: nothing. */

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { StepError } from "../src/index.js";
import { type Body, ask, invoke, registry, turn } from "./engine.js";

const collect = (globalThis as { gc?: () => void }).gc;

test("a workflow that is left at a step is collected with all it holds", async () => {
  assert.ok(collect, "run with --expose-gc");
  const held: WeakRef<object>[] = [];
  const workflows = registry();
  workflows.workflow("w", {}, async (ctx, step) => {
    const large = { bytes: new Uint8Array(1_000_000) };
    held.push(new WeakRef(large), new WeakRef(ctx));
    try {
      await Promise.all([step.run("a", () => 1), step.run("b", () => large.bytes.length), step.sleep("c", 1)]);
    } finally {
      held.push(new WeakRef({ never: large }));
    }
  });

  for (let time = 0; time < 20; time += 1) await ask(workflows, {});
  for (let pass = 0; pass < 10 && held.some((ref) => ref.deref() !== undefined); pass += 1) {
    await turn();
    collect();
  }

  assert.equal(held.length, 40);
  assert.equal(held.filter((ref) => ref.deref() !== undefined).length, 0);
});

test("nothing is rejected that nobody handles", async () => {
  const unhandled: unknown[] = [];
  const note = (reason: unknown): void => void unhandled.push(reason);
  process.on("unhandledRejection", note);
  const failed = { status: "failed", error: { name: "E", message: "m" } };
  const bodies: Body[] = [
    async (_ctx, step) => Promise.all([step.run("a", () => 1), step.run("b", () => 2)]),
    async (_ctx, step) => {
      const a = step.run("a", () => 1);
      const b = step.run("b", () => 2);
      await a;
      await b;
    },
    async (_ctx, step) =>
      Promise.all([
        step.run("a", () => 1),
        step.run("a", () => {
          throw new Error("in a step");
        }),
      ]),
    async (_ctx, step) => {
      await step.run("c", () => {
        throw new Error("in a step");
      });
    },
    async (_ctx, step) => {
      await Promise.race([step.run("c", turn), turn()]);
      throw new Error("after the end");
    },
    async (_ctx, step) => {
      await step.run("c", async () => {
        await step.run("nested", () => 1);
      });
    },
    async (_ctx, step) => {
      step.run("d", () => 1);
    },
  ];
  try {
    for (const body of bodies) await invoke(body, { a: failed, b: failed });
    await turn();
    await turn();
    assert.deepEqual(unhandled, []);
  } finally {
    process.off("unhandledRejection", note);
  }
});

test("errors that come after the end change nothing", async () => {
  const op = await invoke(async (_ctx, step) => {
    await Promise.race([step.run("a", () => 1), turn()]);
    await turn();
    throw new StepError("late", "late", "a");
  });
  await turn();

  assert.deepEqual([op["op"], op["id"]], ["step_completed", "a"]);
});

test("a process that has answered may end: nothing keeps it alive", () => {
  const script = `
    import { Workflows } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
    import { ask, registry } from ${JSON.stringify(new URL("./engine.js", import.meta.url).href)};
    const workflows = registry();
    workflows.workflow("w", {}, async (_ctx, step) => step.run("a", () => 1));
    console.log((await ask(workflows, {})).op);
  `;
  const ended = spawnSync(process.execPath, ["--input-type=module", "-e", script], {
    encoding: "utf8",
    timeout: 60_000,
  });

  assert.deepEqual([ended.status, ended.stdout, ended.stderr], [0, "step_completed\n", ""]);
});
