/** Events as workflow code sees and sends them. */

import type { Members } from "./known-options.js";

/** The data of events by their names, as a project declares them: `{ "order.created": { total: number } }`. */
export type EventMap = object;

/** Any event name, any data: what holds where a project declares no events. */
export type AnyEvents = Record<string, Record<string, any>>;

/** The data of an event of this name; that of events which are not declared is not known. */
export type DataOf<Events extends EventMap, Name extends string> = Name extends keyof Events
  ? Events[Name]
  : Record<string, any>;

/** An event that was received. `id` is the engine's ULID, `ts` unix milliseconds. */
export interface Event<Name extends string = string, Data = Record<string, any>> {
  id: string;
  name: Name;
  data: Data;
  ts: number;
}

/** An event to send. `id` deduplicates (the engine makes one per run and step), `ts` is unix milliseconds. */
export interface OutgoingEvent<Name extends string = string, Data = Record<string, any>> {
  name: Name;
  data?: Data;
  id?: string;
  ts?: number | Date;
}

/** What an event to send may have. */
export const EVENT_MEMBERS = Object.keys({ name: true, data: true, id: true, ts: true } satisfies Members<OutgoingEvent>);

/** The names of declared events; any text where none are declared. */
export type NameOf<Events extends EventMap> = keyof Events & string;
