/**
 * What the engine would refuse in a step call that it carries out, refused before it is asked (protocol section 3).
 *
 * Only calls that have no stored result are judged: what a run has passed stays as it was, whatever the rules were then.
 */

import type { StepCall } from "./calls.js";
import { expressionFault, workflowNameFault } from "./definition.js";
import { StepArgumentError } from "./errors.js";
import { EVENT_MEMBERS } from "./event.js";
import { refuseUnknown } from "./known-options.js";
import { listenerFault, senderFault } from "./rules/event-names.js";
import { parse, parseMatch } from "./rules/expression.js";
import { faulty, shown } from "./shown.js";

type Fields = Readonly<Record<string, unknown>>;

const MAX_ID_BYTES = 255;

const CHECKS: Readonly<Record<string, (fields: Fields) => void>> = {
  wait_for_event: (fields) => {
    refuse("event", fields["event"], listenerFault(fields["event"]));
    refuseExpression("match", fields["match"], parseMatch);
    refuseExpression("if", fields["if"], parse);
  },
  invoke: ({ workflow }) => refuse("workflow", workflow, workflowNameFault(workflow)),
  send_event: ({ events }) => (events as Fields[]).forEach(refuseEvent),
};

/** Throws StepArgumentError, which names field, value and what is allowed, for what the engine does not take. */
export function refuseBadFields({ op, fields }: StepCall): void {
  CHECKS[op]?.(fields);
}

function refuseEvent(event: Fields, index: number): void {
  const { name, data, id, ts } = event;
  const path = `events[${index}]`;
  // The engine would take the event without them.
  refuseUnknown(event, EVENT_MEMBERS, { prefix: `${path}.`, kind: StepArgumentError });
  refuse(`${path}.name`, name, senderFault(name));
  if (data != null && (typeof data !== "object" || Array.isArray(data))) {
    throw new StepArgumentError(`${path}.data: an object, not ${shown(data, 50)}`);
  }
  refuse(`${path}.id`, id, idFault(id));
  refuse(`${path}.ts`, ts, timeFault(ts));
}

function idFault(id: unknown): string | null {
  if (id == null) return null;
  const allowed = `a string of 1–${MAX_ID_BYTES} bytes without NUL and lone surrogates`;
  if (typeof id !== "string" || id === "" || id.includes("\0") || !id.isWellFormed()) return allowed;
  return new TextEncoder().encode(id).length > MAX_ID_BYTES ? allowed : null;
}

function timeFault(ts: unknown): string | null {
  if (ts == null || (Number.isSafeInteger(ts) && (ts as number) >= 0)) return null;
  return `a Date, or unix time in whole milliseconds, 0–${Number.MAX_SAFE_INTEGER}`;
}

function refuseExpression(path: string, text: unknown, read: (text: string) => unknown): void {
  if (text == null) return;
  const fault = expressionFault(read, text as string);
  if (fault !== null) throw new StepArgumentError(`${path}: ${fault}, in ${shown(text)}`);
}

function refuse(path: string, value: unknown, fault: string | null): void {
  if (fault !== null) throw new StepArgumentError(`${path}: ${faulty(value, fault)}`);
}
