/** The workflows that `runr conformance` drives (docs/how-to/conformance.md), with the TypeScript SDK. */

import { serveByFetch } from "./serve-by-fetch.js";
import { type Context, NonRetriableError, RetryAfterError, type Step, StepError, Workflows } from "../src/index.js";

const wf = new Workflows();

class ConformanceError extends Error {
  override name = "ConformanceError";
}

type Data = Record<string, any>;

function made(data: Data): unknown {
  switch (data["make"]) {
    case "echo":
      return data["value"];
    case "nan":
      return Number.NaN;
    case "infinity":
      return [1, { deep: Number.NEGATIVE_INFINITY }];
    case "unserializable":
      return { deep: 10n };
    default:
      return undefined;
  }
}

function fail({ kind, message, retry_after }: Data): never {
  if (kind === "non_retriable") throw new NonRetriableError(message);
  if (kind === "retry_after") throw new RetryAfterError(message, retry_after);
  throw new ConformanceError(message);
}

function seen(error: unknown): Data {
  if (!(error instanceof StepError)) throw error;
  return { name: error.name, message: error.message, step_id: error.stepId };
}

wf.workflow("conformance-replay", { checkpoint: { maxSteps: 50, maxTime: "5s" } }, async (ctx, step) => {
  const data: Data = ctx.event.data;
  const executed: string[] = [];
  const body = async (name: string) => {
    executed.push(name);
    await new Promise((resolve) => setTimeout(resolve, data["pause_ms"] ?? 0));
    return { step: name, executed: [...executed], attempt: ctx.attempt, tag: data["tag"] ?? null };
  };
  const first = await step.run("first", body, "first");
  const second = await step.run("second", body, "second");
  return { first, second, executed };
});

wf.workflow("conformance-ids", {}, async (ctx, step) => {
  const results: number[] = [];
  for (const [index, id] of (ctx.event.data["ids"] as string[]).entries()) {
    results.push(await step.run(id, () => index));
  }
  return results;
});

wf.workflow("conformance-errors", {}, async (ctx, step) => {
  const data: Data = ctx.event.data;
  if (data["where"] === "workflow") fail(data);
  try {
    return await step.run("risky", () => fail(data));
  } catch (error) {
    if (data["catch"] !== true) throw error;
    const told = seen(error);
    await step.run("compensate", () => told);
    return told;
  }
});

function called({ event }: Context<Data>, step: Step): Promise<unknown> {
  const { kind, duration, until, events, ...options }: Data = event.data;
  switch (kind) {
    case "sleep":
      return step.sleep("it", duration);
    case "sleep_until":
      return step.sleepUntil("it", until);
    case "wait_for_event":
      return step.waitForEvent("it", options as { event: string });
    case "invoke":
      return step.invoke("it", options as { workflow: string });
    default:
      return step.sendEvent("it", events);
  }
}

wf.workflow("conformance-kinds", {}, async (ctx, step) => {
  try {
    return { result: await called(ctx, step) };
  } catch (error) {
    return { error: seen(error) };
  }
});

wf.workflow("conformance-values", {}, async (ctx, step) => {
  const data: Data = ctx.event.data;
  if (data["where"] === "workflow") return made(data);
  return { value: await step.run("value", made, data) };
});

wf.workflow("conformance-swallow", {}, async (ctx, step) => {
  const then = ctx.event.data["then"];
  try {
    await step.run("first", () => 1);
  } catch {
    // The rule is about code that catches all it can.
  }
  if (then === "raise") throw new ConformanceError("after the swallowing");
  if (then === "step") {
    try {
      await step.run("second", () => 2);
    } catch {
      // The same.
    }
  }
  return "swallowed";
});

wf.workflow("conformance-nested", {}, async (_ctx, step) =>
  step.run("outer", async () => {
    await step.run("inner", () => 1);
  }),
);

wf.workflow("conformance-together", {}, async (_ctx, step) =>
  Promise.all(["a", "b", "c"].map((name) => step.run(name, () => name))),
);

if (process.env["BY_FETCH"] === "1") serveByFetch(wf);
else await wf.serve({ host: "127.0.0.1", port: 0, grace: 1 });
