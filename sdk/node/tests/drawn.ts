/** Drawn programs as the data of a workflow, which does what they say. */

import { NonRetriableError, RetryAfterError, StepError, type Workflows } from "../src/index.js";

export type Drawn =
  | { do: "run" | "flaky" | "fail" | "nan" | "send" | "sleep" | "wait" | "invoke" | "bad"; id: string }
  | { do: "seq" | "par"; parts: Drawn[] };

const LEAVES = ["run", "run", "flaky", "fail", "nan", "send", "sleep", "wait", "invoke", "bad"] as const;

/** A program. Few ids, so that places share them and the counters matter. */
export function drawn(draw: (most: number) => number, depth = 0): Drawn {
  if (depth < 3 && draw(depth === 0 ? 8 : 3) > 0) {
    const parts = Array.from({ length: 1 + draw(4) }, () => drawn(draw, depth + 1));
    return { do: draw(2) === 0 ? "seq" : "par", parts };
  }
  return { do: LEAVES[draw(LEAVES.length)] ?? "run", id: "abc"[draw(3)] ?? "a" };
}

/** The workflows `drawn`, whose data is `{ program }`, and `drawn-child`. */
export function register(wf: Workflows): void {
  const child = wf.workflow("drawn-child", { retries: 0 }, async (ctx, step) => {
    if (ctx.event.data["place"].length % 3 === 0) throw new Error("the child fails");
    await step.sleep("nap", "5ms");
    return ctx.event.data["place"];
  });

  wf.workflow("drawn", { retries: 2 }, async (ctx, step) => {
    const play = async (program: Drawn, place: string): Promise<unknown> => {
      switch (program.do) {
        case "seq": {
          const made: unknown[] = [];
          for (const [index, part] of program.parts.entries()) made.push(await told(part, `${place}.${index}`));
          return made;
        }
        case "par":
          return Promise.all(program.parts.map((part, index) => told(part, `${place}.${index}`)));
        case "send":
          return (await step.sendEvent(program.id, { name: "drawn.told", data: { place } })).ids.length;
        case "sleep":
          return step.sleep(program.id, "5ms");
        case "wait":
          return step.waitForEvent(program.id, { event: "drawn.never", timeout: "5ms" });
        case "invoke":
          return step.invoke(program.id, { workflow: child, data: { place } });
        case "bad":
          return step.waitForEvent(program.id, { event: "no blanks" });
        default:
          return step.run(program.id, () => {
            if (program.do === "flaky" && ctx.attempt < 1) throw new RetryAfterError(`${place} is busy`, "5ms");
            if (program.do === "fail") throw new NonRetriableError(`${place} fails`);
            return program.do === "nan" ? Number.NaN : place;
          });
      }
    };
    const told = async (program: Drawn, place: string): Promise<unknown> => {
      if ("parts" in program) return play(program, place);
      return play(program, place).catch((error: unknown) => {
        if (!(error instanceof StepError)) throw error;
        return `${error.name}: ${error.message}`;
      });
    };
    return told(ctx.event.data["program"], "p");
  });
}
