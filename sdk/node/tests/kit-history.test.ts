/** `replay`: whether code still goes the way of a run that is stored. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { NonRetriableError, type Workflows } from "../src/index.js";
import { Divergence, type History, TestEngine, replay } from "../src/testing.js";
import { type Body, registry } from "./engine.js";
import { encryption } from "./encryption.js";

const executed: string[] = [];

function app(body: Body, middleware: Parameters<typeof registry>[0] = {}): Workflows<any> {
  const workflows = registry(middleware);
  workflows.workflow("w", { retries: 0 }, body);
  return workflows;
}

const body: Body = async (ctx, step) => {
  const a = await step.run("a", () => (executed.push("a"), 1));
  await step.sleep("nap", "1d");
  const told = await step.waitForEvent("told", { event: "told" });
  return { a, told: told?.data, by: ctx.event.data["by"] };
};

async function history(of: Body = body, status = "completed"): Promise<History> {
  const engine = new TestEngine(app(of));
  if (status === "completed") await engine.send("told", { n: 1 }, { whenWaiting: "told" });
  const run = await (status === "waiting" ? engine.start("w", { by: "me" }) : engine.run("w", { by: "me" }));
  if (status === "waiting") await engine.advance("2d");
  assert.equal(run.status, status);
  return run.history;
}

test("code that goes the same way executes nothing", async () => {
  const stored = await history();
  executed.length = 0;
  const found = await replay(app(body), stored);

  assert.deepEqual(found, { called: ["a", "nap", "told"], next: null });
  assert.deepEqual(executed, []);
});

test("the first divergence is named", async () => {
  const stored = await history();
  const codes: [Body, string, string | null][] = [
    [
      async (_ctx, step) => {
        await step.run("renamed", () => 1);
      },
      'the history goes on with step "a", where the code calls "renamed"',
      "a",
    ],
    [
      async (ctx, step) => {
        await step.run("a", () => 1);
        await step.run("new", () => 1);
        return body(ctx, step);
      },
      'the history goes on with step "nap", where the code calls "new"; the last step that it called is "a"',
      "nap",
    ],
    [
      async (_ctx, step) => {
        await step.run("a", () => 1);
        await step.run("nap", () => 1);
      },
      'step "nap" is run in the code, and sleep in the history',
      "nap",
    ],
    [
      async (_ctx, step) => step.run("a", () => 1),
      'the history goes on with step "nap", where the code ends; the last step that it called is "a"',
      "nap",
    ],
    [
      async (_ctx, step) => {
        await step.run("a", () => 1);
        throw new TypeError("broken");
      },
      'the history goes on with step "nap", where the code fails with TypeError: broken; the last step that it called is "a"',
      "nap",
    ],
    [
      async (ctx, step) => ({ ...((await body(ctx, step)) as object), by: "you" }),
      'the run has completed with {"a":1,"told":{"n":1},"by":"me"}, the code with {"a":1,"told":{"n":1},"by":"you"}',
      null,
    ],
    [
      async (ctx, step) => {
        await body(ctx, step);
        await step.run("more", () => 1);
      },
      'the run has completed, and the code goes on with a new step "more"',
      "more",
    ],
  ];
  for (const [code, message, stepId] of codes) {
    await assert.rejects(replay(app(code), stored), (error) => {
      assert.ok(error instanceof Divergence);
      assert.deepEqual([error.message, error.stepId], [message, stepId]);
      return true;
    });
  }
});

test("an active run may go on with new steps behind the old ones only", async () => {
  const stored = await history(body, "waiting");
  const behind: Body = async (ctx, step) => {
    await body(ctx, step);
    await step.run("behind", () => 1);
  };
  const before: Body = async (ctx, step) => {
    await step.run("a", () => 1);
    await step.sleep("nap", "1d");
    await step.run("before", () => 1);
    return body(ctx, step);
  };
  const short: Body = async (_ctx, step) => {
    await step.run("a", () => 1);
    await step.sleep("nap", "1d");
  };

  assert.deepEqual(await replay(app(behind), stored), { called: ["a", "nap", "told"], next: "told" });
  // As `runr workflows check` says of a run like this: it diverges.
  await assert.rejects(
    replay(app(before), stored),
    /^Divergence: the run is in step "told", and the code calls "before" without it; the last .* called is "nap"$/,
  );
  await assert.rejects(replay(app(short), stored), /the run is in step "told", and the code ends without it/);
});

test("a step that sleeps, waits or tries again is the one in which the run goes on", async () => {
  const behind = async (status: string): Promise<void> => {
    const { steps, ...run } = await history(body, "waiting");
    const open = [...steps.filter(({ id }) => id === "a"), { id: "nap", kind: "sleep", output: null, error: null }];
    const stored = { ...run, steps: open.map((step) => ({ status, ...step })) };
    assert.equal((await replay(app(body), stored)).next, "nap");
    const insured: Body = async (ctx, step) => {
      await step.run("a", () => 1);
      await step.run("insure", () => 1);
      return body(ctx, step);
    };
    await assert.rejects(replay(app(insured), stored), /^Divergence: the run is in step "nap", and the code calls "insure"/);
  };
  for (const status of ["sleeping", "waiting", "retrying"]) await behind(status);
});

test("an active run may fail with the error of its step that has failed for good, and with no other", async () => {
  const { steps, ...run } = await history(body, "waiting");
  const failed = { status: "failed", error: { name: "Declined", message: "no money" }, output: null };
  const stored = { ...run, status: "queued", steps: [{ id: "a", kind: "run", ...failed }] };
  const other: Body = async (ctx, step) => {
    await Promise.resolve(body(ctx, step)).catch(() => {
      throw new TypeError("other");
    });
  };

  assert.equal(steps.length, 3);
  assert.deepEqual(await replay(app(body), stored), { called: ["a"], next: null });
  await assert.rejects(replay(app(other), stored), /the run is queued, and the code fails with TypeError: other/);
});

test("a run that failed fails again, also where its failure was caught", async () => {
  const failing: Body = async (_ctx, step) => {
    await step.run("a", () => {
      throw new NonRetriableError("no");
    });
  };
  const caught: Body = async (ctx, step) => Promise.resolve(failing(ctx, step)).catch(() => "caught");
  const stored = await history(failing, "failed");

  assert.deepEqual(await replay(app(failing), stored), { called: ["a"], next: null });
  await assert.rejects(replay(app(caught), stored), /the run has failed, and the code completes/);
  const compensated = new TestEngine(app(caught));
  const run = await compensated.run("w");
  assert.deepEqual(await replay(app(caught), run.history), { called: ["a"], next: null });
  await assert.rejects(
    replay(app(failing), run.history),
    /the run is completed, and the code fails with NonRetriableError/,
  );
});

test("with middleware, outputs are compared as they are meant", async () => {
  const options = { middleware: [await encryption(new Uint8Array(32))] };
  const run = await new TestEngine(app(async (_ctx, step) => step.run("a", () => 1), options)).run("w");

  assert.deepEqual(
    (
      await replay(
        app(async (_ctx, step) => step.run("a", () => 2), options),
        run.history,
      )
    ).called,
    ["a"],
  );
  const other = app(async (_ctx, step) => (await step.run("a", () => 1)) + 1, options);
  await assert.rejects(replay(other, run.history), /the run has completed with 1, the code with 2/);
});

test("what is no history of this code is refused", async () => {
  const stored = await history();

  await assert.rejects(replay(registry(), stored), /^Divergence: the run cannot be replayed: the workflow "w" is not/);
  await assert.rejects(replay(app(body), { ...stored, event: null }), /the history has no event/);
});
