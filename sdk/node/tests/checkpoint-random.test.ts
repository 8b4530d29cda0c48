/** Random programs answer what they would have answered step by step, whatever is lost on the way. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";
import { type Context, type Middleware, type Step, StepError, type Workflows } from "../src/index.js";
import { Lines, type Op, drive, registry, turn } from "./engine.js";
import { luck } from "./luck.js";

const SLOW_SEEDS = 60;

type Program =
  | { kind: "run" | "flaky" | "fail" | "send" | "sleep"; id: string; turns: number }
  | { kind: "idle"; turns: number }
  | { kind: "seq" | "par"; parts: Program[] };

function program(draw: (most: number) => number, depth = 0): Program {
  if (depth < 3 && draw(depth === 0 ? 8 : 3) > 0) {
    const parts = Array.from({ length: 1 + draw(4) }, () => program(draw, depth + 1));
    return { kind: draw(2) === 0 ? "seq" : "par", parts };
  }
  const kinds = ["run", "run", "run", "flaky", "fail", "send", "sleep", "idle"] as const;
  const kind = kinds[draw(kinds.length)] ?? "run";
  // Few ids, so that places share them and the counters matter.
  return kind === "idle" ? { kind, turns: draw(4) } : { kind, id: "abc"[draw(3)] ?? "a", turns: draw(3) };
}

/** A program as a workflow. What a function returns names its place, so that a result taken for another shows. */
class Story {
  executions = 0;

  constructor(
    private readonly program: Program,
    private readonly idle: (count: number) => Promise<null> = turns,
  ) {}

  register(workflows: Workflows<any>): void {
    workflows.workflow("w", {}, (ctx, step) => this.#do(ctx, step, this.program, "p"));
  }

  #do(ctx: Context<any>, step: Step<any>, program: Program, place: string): Promise<unknown> {
    switch (program.kind) {
      case "seq":
        return this.#inOrder(ctx, step, program.parts, place);
      case "par":
        return Promise.all(program.parts.map((part, index) => this.#do(ctx, step, part, `${place}.${index}`)));
      case "idle":
        return this.idle(program.turns);
      case "send":
        return step.sendEvent(program.id, { name: place });
      case "sleep":
        return step.sleep(program.id, "1s");
      default:
        return step
          .run(program.id, () => this.#body(ctx, program, place))
          .catch((error: unknown) => (error instanceof StepError ? error.message : assert.fail(String(error))));
    }
  }

  async #inOrder(ctx: Context<any>, step: Step<any>, parts: Program[], place: string): Promise<unknown[]> {
    const results: unknown[] = [];
    for (const [index, part] of parts.entries()) results.push(await this.#do(ctx, step, part, `${place}.${index}`));
    return results;
  }

  async #body(
    ctx: Context<any>,
    { kind, turns: count }: { kind: string; turns: number },
    place: string,
  ): Promise<string> {
    this.executions += 1;
    await turns(count);
    if (kind === "fail" || (kind === "flaky" && ctx.attempt === 0)) throw new Error(`${place} fails`);
    return place;
  }
}

/** Promise callbacks, which take no time. */
async function callbacks(count: number): Promise<null> {
  for (let index = 0; index < 7 * count; index += 1) await null;
  return null;
}

async function turns(count: number): Promise<null> {
  for (let index = 0; index < count; index += 1) await turn();
  return null;
}

const bare = (ops: Op[]): Op[] => ops.map(({ duration_ms, error, ...op }) => ({ ...op, error: error?.message }));

async function compare(seed: number): Promise<void> {
  const draw = luck(seed);
  const story = new Story(program(draw));
  const logger = new Lines();
  const workflows = registry({ logger });
  story.register(workflows);
  const max_ops = [2, 3, 50][draw(3)];
  const lost: number[] = [];
  const loses = (answer: number): boolean => draw(4) === 0 && lost.push(answer) > 0;

  const plain = await drive(workflows, { most: 500, attempts: 3 });
  const once = story.executions;
  const several = await drive(workflows, { most: 500, attempts: 3, more: { max_ops } });
  const lossy = await drive(workflows, { most: 500, attempts: 3, more: { max_ops }, loses });

  for (const run of [several, lossy]) {
    assert.deepEqual([...run.memo.keys()], [...plain.memo.keys()]);
    assert.deepEqual(bare(run.ops), bare(plain.ops));
  }
  const alarms = logger.all.filter(([, text]) => String(text).includes("did not ask for"));
  assert.deepEqual(alarms, [], "steps of code that has not changed are all asked for");
  assert.ok(several.answers <= plain.answers);
  assert.ok(lossy.answers - lost.length <= plain.answers);
  assert.ok(story.executions <= 3 * once + lost.length * (max_ops ?? 0));
}

/** Middleware that takes its time, now this and now that. */
function slow(draw: (most: number) => number): Middleware {
  const waits = [() => undefined, () => Promise.resolve(), turn, () => sleep(1)];
  const late = async (value: unknown): Promise<unknown> => {
    await waits[draw(waits.length)]?.();
    return value;
  };
  return {
    encode: (value) => late({ value }),
    decode: (stored) => late((stored as { value?: unknown }).value ?? stored),
  };
}

/** What a program comes to, whatever ids its steps have. */
function wanted(program: Program, place: string): unknown {
  switch (program.kind) {
    case "seq":
    case "par":
      return program.parts.map((part, index) => wanted(part, `${place}.${index}`));
    case "idle":
    case "sleep":
      return null;
    case "send":
      return { ids: ["01J0000000000000000000000C"] };
    default:
      return program.kind === "fail" ? `${place} fails` : place;
  }
}

test("however long it takes to decode what is stored, each step has its own result", async () => {
  for (let seed = 0; seed < SLOW_SEEDS; seed += 1) {
    const draw = luck(seed);
    const made = program(draw);
    for (const max_ops of [1, 3, 50]) {
      const workflows = registry({ middleware: [slow(draw)] });
      // Nothing is waited for but steps: beside steps that are decoded, it would be a race.
      new Story(made, callbacks).register(workflows);
      const event = { id: "e", name: "x", data: {}, ts: 1 };
      const { ops } = await drive(workflows, { most: 500, attempts: 3, more: { max_ops, event } });
      assert.deepEqual(ops.at(-1)?.["output"], { value: wanted(made, "p") }, `seed ${seed}, ${max_ops} ops`);
    }
  }
});

test("several ops come to the same as one", async () => {
  for (let seed = 0; seed < 120; seed += 1) {
    await compare(seed).catch((error: unknown) => {
      throw new Error(`seed ${seed}`, { cause: error });
    });
  }
});

test("code that takes its time between steps keeps its results", async () => {
  for (let passes = 0; passes < 10; passes += 1) {
    const workflows = registry();
    workflows.workflow("w", {}, async (_ctx, step) => {
      const first = async (): Promise<string[]> => {
        const one = await step.run("a", () => sleep(3).then(() => "first"));
        await turns(2);
        return [one, await step.run("a", () => "first again")];
      };
      const second = async (): Promise<string> => {
        await turns(passes);
        return step.run("a", () => "second");
      };
      return Promise.all([first(), second()]);
    });
    const { ops } = await drive(workflows, { more: { max_ops: 50 } });
    assert.deepEqual(ops.at(-1)?.["output"], [["first", "first again"], "second"]);
  }
});
