/** The client of the REST API. */

import { EVENT_MEMBERS, type EventMap } from "../event.js";
import type { Jsonified } from "../jsonified.js";
import { refuseUnknown } from "../known-options.js";
import { Codecs } from "../pipeline.js";
import { shown } from "../shown.js";
import type { Outgoing } from "../step.js";
import type { DataOfWorkflow, OutputOfWorkflow, Workflow } from "../workflow.js";
import { ABORTABLE, CLIENT, EVENTS, RUNS, SEND, START } from "./options.js";
import type { Abortable, ClientOptions, EventFilter, RunFilter, SendOptions, StartOptions } from "./options.js";
import { RunHandle } from "./run-handle.js";
import { clientSettings } from "./settings.js";
import { Transport } from "./transport.js";
import type { Run, SentEvent, StoredEvent } from "./views.js";

/** An event as the API takes it, before its data is encoded. */
interface Sent {
  readonly name: string;
  readonly data?: unknown;
  readonly id?: string;
  readonly ts?: number | Date;
}

/**
 * Sends events, starts runs, and asks for what became of them.
 *
 * `Events` declares the data of events by their names, as that of `Workflows`. It needs nothing but `fetch`: Node, Deno,
 * Bun, Workers. Give it no token that may not be read where it runs, as in a browser.
 */
export class Client<Events extends EventMap = Record<string, Record<string, any>>> {
  readonly #transport: Transport;
  readonly #codecs: Codecs;
  readonly #project: string;

  /** Throws SettingsError, a TypeError, for what is wrong or missing. */
  constructor(options: ClientOptions = {}) {
    refuseUnknown(options, CLIENT);
    this.#transport = new Transport({ ...clientSettings(options), fetch: options.fetch ?? globalThis.fetch });
    this.#codecs = new Codecs(options.middleware ?? []);
    this.#project = encodeURIComponent(options.project ?? "default");
  }

  /**
   * Sends one event, or up to 100 that are accepted or refused as one.
   *
   * An event with an `id` is accepted once, however often it is sent. One without gets an id here, so that a request
   * that is made again sends nothing twice.
   */
  send(events: readonly Outgoing<Events>[], options?: SendOptions): Promise<SentEvent[]>;
  send(event: Outgoing<Events>, options?: SendOptions): Promise<SentEvent>;
  async send(
    events: Outgoing<Events> | readonly Outgoing<Events>[],
    options: SendOptions = {},
  ): Promise<SentEvent | SentEvent[]> {
    refuseUnknown(options, SEND);
    const listed = (Array.isArray(events) ? events : [events]) as readonly Sent[];
    listed.forEach((event, index) => refuseNoEvent(event, Array.isArray(events) ? `events[${index}]` : "event"));
    const body = await Promise.all(listed.map((event) => this.#outgoing(event)));
    const query = options.test === true ? { test: 1 } : {};
    const call = { method: "POST", path: "/events", query, body, isRepeatable: true, signal: options.signal } as const;
    const reply = (await this.#transport.call(call)).body as { events: SentEvent[] };
    const sent = reply.events.map((event, index) => {
      // By an id that was made here it is known from the same request, made before.
      return listed[index]?.id === undefined ? { ...event, duplicate: false } : event;
    });
    return Array.isArray(events) ? sent : (sent[0] as SentEvent);
  }

  /**
   * Starts a run of a workflow, by what `wf.workflow` returned or by name, and resolves once it is stored.
   *
   * With a `key` it is made again where the outcome is not known, and starts one run at most. Without one it is so for a
   * workflow that is given as `wf.workflow` returned it; given by name, the client cannot know whether the workflow has
   * a key of its own, and rejects with ApiUnreachable.
   */
  start<Output = unknown>(workflow: string, options?: StartOptions<object>): Promise<RunHandle<Output>>;
  start<W extends Workflow<any, any>>(
    workflow: W,
    options?: StartOptions<DataOfWorkflow<W>>,
  ): Promise<RunHandle<Jsonified<OutputOfWorkflow<W>>>>;
  async start(workflow: string | Workflow, options: StartOptions<object> = {}): Promise<RunHandle<unknown>> {
    refuseUnknown(options, START);
    const name = typeof workflow === "string" ? workflow : workflow.name;
    const hasOwnKey = typeof workflow !== "string" && workflow.definition["idempotency"] !== undefined;
    const key = options.key ?? (typeof workflow === "string" || hasOwnKey ? undefined : newId());
    const reply = await this.#transport.call({
      method: "POST",
      path: `/projects/${this.#project}/workflows/${encodeURIComponent(name)}/runs`,
      body: {
        data: await this.#encoded(options.data ?? {}),
        idempotency_key: key,
        delay: options.delay,
        at: options.at,
        tags: options.tags,
        test: options.test,
      },
      isRepeatable: key !== undefined || hasOwnKey,
      signal: options.signal,
    });
    return new RunHandle(this.#transport, this.#codecs, (reply.body as Run).id, reply.status === 201);
  }

  /** A run by its id. Asks nothing: `await client.run(id).get()` does. */
  run<Output = unknown>(id: string): RunHandle<Output> {
    return new RunHandle<Output>(this.#transport, this.#codecs, id);
  }

  /** The project's runs, newest first, page by page as they are asked for; without `event` and `output`. */
  runs(filter: RunFilter = {}): AsyncGenerator<Run, void, void> {
    refuseUnknown(filter, RUNS, { what: "filter" });
    const { workflow, status, tag, q } = filter;
    const name = typeof workflow === "object" ? workflow.name : workflow;
    return this.#listed<Run>(`/projects/${this.#project}/runs`, { workflow: name, status, tag, q }, filter);
  }

  /** The events of the tenant, newest first, page by page as they are asked for; without `data`. */
  events(filter: EventFilter = {}): AsyncGenerator<StoredEvent, void, void> {
    refuseUnknown(filter, EVENTS, { what: "filter" });
    return this.#listed<StoredEvent>("/events", { name: filter.name, source: filter.source }, filter);
  }

  /** One event with its data, and the runs that it has started, resumed and cancelled. */
  async event(id: string, options: Abortable = {}): Promise<StoredEvent> {
    refuseUnknown(options, ABORTABLE);
    const { signal } = options;
    const path = `/events/${encodeURIComponent(id)}`;
    const { body } = await this.#transport.call({ method: "GET", path, isRepeatable: true, signal });
    return this.#codecs.decodeEvent(body as StoredEvent);
  }

  async #outgoing(event: Sent): Promise<object> {
    const ts = event.ts instanceof Date ? event.ts.getTime() : event.ts;
    return { name: event.name, data: await this.#encoded(event.data ?? {}), id: event.id ?? newId(), ts };
  }

  async #encoded(data: unknown): Promise<unknown> {
    return this.#codecs.encodesNothing ? data : this.#codecs.encodeData(data);
  }

  async *#listed<T>(path: string, query: object, filter: RunFilter | EventFilter): AsyncGenerator<T, void, void> {
    const { from, to, pageSize: limit, signal } = filter;
    let cursor: string | undefined;
    do {
      const asked = { ...query, from, to, limit, cursor };
      const reply = await this.#transport.call({ method: "GET", path, query: asked, isRepeatable: true, signal });
      const page = reply.body as { data: T[]; next_cursor: string | null };
      yield* page.data;
      cursor = page.next_cursor ?? undefined;
    } while (cursor !== undefined);
  }
}

/** Throws TypeError for what is no event, UnknownOptionError for what has a member that no event has. */
function refuseNoEvent(event: unknown, path: string): void {
  if (typeof (event as { name?: unknown } | null | undefined)?.name !== "string") {
    const like = "{ name: 'order.paid', data: {} }";
    throw new TypeError(`${path}: an object with a name, like ${like}, not ${shown(event, 50)}`);
  }
  refuseUnknown(event, EVENT_MEMBERS, { what: path, prefix: `${path}.` });
}

/** A random id. Node 18 has no `crypto`: there it is of the random numbers that there are. */
function newId(): string {
  const { crypto } = globalThis as { crypto?: { randomUUID(): string } };
  if (crypto !== undefined) return crypto.randomUUID();
  return Array.from({ length: 4 }, () => Math.floor(Math.random() * 2 ** 32).toString(16)).join("-");
}
