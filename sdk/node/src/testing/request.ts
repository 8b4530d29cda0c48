/** Execute requests as the engine makes them (protocol section 4). */

import { type StoredRun, timeText } from "./stored.js";

/** The request of the next invocation of a run; `maxOps` is null where it may answer one op. */
export function executeRequest(run: StoredRun, nowMs: number, maxOps: number | null): string {
  const { parent } = run.begins;
  const request = {
    type: "execute",
    protocol: "v1",
    ts: Math.floor(nowMs / 1000),
    workflow: run.workflow,
    run: {
      id: run.id,
      attempt: run.attempt,
      started_at: timeText(run.startedMs),
      source: run.source,
      replay: false,
      parent_run_id: parent?.id ?? null,
      test: true,
    },
    event: run.event,
    step_order: run.memo.map(([id]) => id),
    ...(maxOps === null ? {} : { max_ops: maxOps }),
  };
  return withSteps(request, run.memo);
}

/** The text of a request with its steps; by hand, because an object would put ids that are integers first. */
export function withSteps(request: object, memo: readonly (readonly [id: string, result: object])[]): string {
  const steps = memo.map(([id, result]) => `${JSON.stringify(id)}:${JSON.stringify(result)}`);
  return `${JSON.stringify(request).slice(0, -1)},"steps":{${steps.join(",")}}}`;
}
