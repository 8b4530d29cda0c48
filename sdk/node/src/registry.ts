/** The registry of a project's workflows, and the ways to serve them that need nothing of Node. */

import { buildDefinition } from "./definition.js";
import { Endpoint } from "./endpoint.js";
import { DefinitionError } from "./errors.js";
import type { EventMap } from "./event.js";
import { type RequestHeaders, answerHeaders } from "./headers.js";
import { type Members, refuseUnknown } from "./known-options.js";
import type { Logger } from "./logger.js";
import type { Middleware } from "./middleware.js";
import { Pipeline } from "./pipeline.js";
import { type Answer, checkVersion } from "./protocol.js";
import { type FaasResult, answerFaas } from "./serving/faas.js";
import { answerFetch } from "./serving/fetch.js";
import { KEY_VARIABLE, SigningKeys } from "./signing-keys.js";
import type { EventName } from "./step.js";
import { zoneDoubts } from "./time-zones.js";
import type { Trigger, TriggerEvent, Workflow, WorkflowFunction, WorkflowOptions } from "./workflow.js";

export interface WorkflowsOptions {
  /** RUNR_WORKFLOW_SIGNING_KEY by default, read on each request, never at import. */
  signingKey?: string | undefined;
  /** RUNR_WORKFLOW_SIGNING_KEY_FALLBACK by default: the other key during a rotation. */
  signingKeyFallback?: string | undefined;
  /** False keeps the arguments of `step.run` out of the timeline. */
  captureInput?: boolean | undefined;
  /** What is done around every invocation and step, and to every value that is stored. */
  middleware?: readonly Middleware[] | undefined;
  /** Where the SDK and `ctx.logger` write; the console by default. */
  logger?: Logger | undefined;
  /** Unix seconds. */
  clock?: (() => number) | undefined;
}

const OPTIONS = Object.keys({
  signingKey: true,
  signingKeyFallback: true,
  captureInput: true,
  middleware: true,
  logger: true,
  clock: true,
} satisfies Members<WorkflowsOptions>);

/** What a registry answers with, for the kit for tests. */
export let endpointOf: (workflows: Registry<any>) => Endpoint;

/**
 * The workflows of one project.
 *
 * `Events` declares the data of events by their names, for types only: `new Workflows<{ "order.created": Order }>()`.
 */
export class Registry<Events extends EventMap = Record<string, Record<string, any>>> {
  static {
    endpointOf = (workflows) => workflows.#endpoint;
  }

  readonly #workflows = new Map<string, Workflow>();
  readonly #keys: SigningKeys;
  readonly #endpoint: Endpoint;
  /** Where the SDK writes. */
  protected readonly logger: Logger;

  /**
   * Throws SettingsError, a TypeError, when RUNR_WORKFLOW_PROTOCOL is set to another protocol than v1, and for a key that
   * is no text: better than at the first request. A key that looks like none an engine has made is told in the log.
   */
  constructor(options: WorkflowsOptions = {}) {
    refuseUnknown(options, OPTIONS);
    checkVersion();
    this.logger = options.logger ?? console;
    this.#keys = new SigningKeys(options, this.logger);
    this.#endpoint = new Endpoint({
      workflows: this.#workflows,
      keys: () => this.#keys.now(),
      clock: options.clock ?? (() => Date.now() / 1000),
      logger: this.logger,
      captureInput: options.captureInput ?? true,
      pipeline: new Pipeline(options.middleware ?? [], this.logger),
    });
  }

  /**
   * Registers `async (ctx, step) => …` as a workflow and returns it, for `step.invoke`.
   *
   * The options are those of engine section 1 in camel case; what is left out has the engine's default. Throws
   * DefinitionError naming every fault, also for a name that is taken.
   */
  workflow<const Triggers extends readonly Trigger<EventName<Events>>[] = readonly [], Output = unknown>(
    name: string,
    options: WorkflowOptions<EventName<Events>, Triggers>,
    fn: WorkflowFunction<Events, TriggerEvent<Events, Triggers>, Output>,
  ): Workflow<TriggerEvent<Events, Triggers>["data"], Output> {
    const definition = buildDefinition(name, options, fn);
    if (this.#workflows.has(name)) throw new DefinitionError(name, ["name: a workflow is already registered under it"]);
    for (const doubt of zoneDoubts(definition)) this.logger.warn(`workflow ${name}: ${doubt}`);
    const workflow: Workflow = { name, definition, fn };
    this.#workflows.set(name, workflow);
    return workflow;
  }

  /** The definitions as an introspect request is answered with them (the format of runr.workflows.json). */
  get definitions(): Readonly<Record<string, unknown>>[] {
    return Array.from(this.#workflows.values(), ({ definition }) => definition);
  }

  /**
   * Answers one engine request: HTTP status and JSON body. For transports of your own. Never rejects.
   *
   * Send them with `answerHeaders` of the same headers.
   */
  handleRequest(body: Uint8Array, headers: RequestHeaders): Promise<Answer> {
    return this.#endpoint.handle(body, headers);
  }

  /**
   * The headers of the answer to a request with these headers: the type, and the id that the request carries.
   *
   * Without them everything works, but the engine opens a new connection for each request.
   */
  static answerHeaders(headers: RequestHeaders): Record<string, string> {
    return answerHeaders(headers);
  }

  /** Request to Response, for all that speaks the fetch API: Next, Hono, Deno, Bun, Workers. */
  readonly fetchHandler = (request: Request): Promise<Response> =>
    answerFetch((body, headers) => this.handleRequest(body, headers), request);

  /** `handler(event, context)` for function platforms; answers `{ statusCode, headers, body }`. */
  readonly handler = (event: unknown, _context?: unknown): Promise<FaasResult> =>
    answerFaas((body, headers) => this.handleRequest(body, headers), event);

  /** The names of the workflows. */
  protected get names(): string[] {
    return [...this.#workflows.keys()];
  }

  /** The variable of the signing key, if there is no key: then every request will be refused. */
  protected get missingKey(): string | null {
    return this.#keys.now().every((key) => key === "") ? KEY_VARIABLE : null;
  }
}
