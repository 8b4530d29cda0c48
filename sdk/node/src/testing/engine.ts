/** `TestEngine`: runs workflows in memory and in virtual time, by the rules of the engine. */

import { parseDuration, timeField } from "../duration.js";
import type { Endpoint } from "../endpoint.js";
import type { Duration } from "../errors.js";
import type { DataOf, Event, EventMap, NameOf } from "../event.js";
import type { Probe } from "../execution.js";
import type { Jsonified } from "../jsonified.js";
import { type Members, refuseUnknown } from "../known-options.js";
import type { Answer } from "../protocol.js";
import type { DataOfWorkflow, OutputOfWorkflow, Workflow } from "../workflow.js";
import { type Registry, endpointOf } from "../registry.js";
import { senderFault } from "../rules/event-names.js";
import { Answers, type Stub } from "./answers.js";
import { declared } from "./declared.js";
import { Events, type Sent } from "./events.js";
import { Faults } from "./faults.js";
import type { Op } from "./op-fields.js";
import { executeRequest } from "./request.js";
import type { Fault } from "./script.js";
import type { StoredRun, StoredStep, TestRun } from "./stored.js";
import { type Action, Timers } from "./timers.js";
import { World } from "./world.js";

/** A registry, or a function that makes one: it is called again for the process that comes after a crash. */
export type App<Declares extends EventMap = any> = Registry<Declares> | (() => Registry<Declares>);

/** What a workflow is named by: what `wf.workflow` returned, or its name. */
type Named = string | Workflow<any, any>;

export interface TestEngineOptions {
  /** What steps of all runs do in place of their functions; see `fails` and `returns`. */
  faults?: readonly Fault[];
  /** What stands for invoked workflows, by name: an output, or a function of the data that returns it or throws. */
  stubs?: Readonly<Record<string, unknown>>;
  /** Ops, counted from 1 over all runs: the process dies when it has made that op, and the answer is lost. */
  crashAfter?: number | readonly number[];
  /** The same, but the op has been stored before the process dies. */
  storedCrashAfter?: number | readonly number[];
  /** The virtual time at the start; 2026-01-01 by default. */
  begins?: Date | string;
}

/** How a run is started. */
export interface StartOptions {
  /** The trigger event, in place of a start over the API; then there is no other data. */
  event?: { readonly name: string; readonly data?: object };
  key?: string;
  delay?: Duration;
  at?: Date | string;
  /** Of this run, and of those that it invokes; they stand before those of the engine. */
  faults?: readonly Fault[];
}

/** When an event is sent: at once, after a duration, at a time, or once a run waits in a step. `id` deduplicates. */
export interface SendOptions {
  id?: string;
  after?: Duration;
  at?: Date | string;
  whenWaiting?: string;
}

const ENGINE = Object.keys({
  faults: true,
  stubs: true,
  crashAfter: true,
  storedCrashAfter: true,
  begins: true,
} satisfies Members<TestEngineOptions>);
const START = Object.keys({
  event: true,
  key: true,
  delay: true,
  at: true,
  faults: true,
} satisfies Members<StartOptions>);
const TRIGGER = Object.keys({ name: true, data: true } satisfies Members<NonNullable<StartOptions["event"]>>);
const SEND = Object.keys({ id: true, after: true, at: true, whenWaiting: true } satisfies Members<SendOptions>);
const MOST_INVOCATIONS = 100_000;
const CRASHED = { name: "FunctionUnreachable", message: "the process died before it answered, as the test says" };

/**
 * An engine for tests: nothing waits, no network, no database.
 *
 * Await each call before the next.
 */
export class TestEngine<Declares extends EventMap = any> {
  readonly #make: () => Registry<any>;
  readonly #timers: Timers;
  readonly #world: World;
  readonly #events: Events;
  readonly #answers: Answers;
  readonly #lost: ReadonlySet<number>;
  readonly #storedBefore: ReadonlySet<number>;
  readonly #scripted = new Map<string, Action[]>();
  readonly #faults: Faults;
  #endpoint: Endpoint;
  #ops = 0;
  #invocations = 0;
  #made = 0;
  #isBusy = false;

  constructor(app: App<Declares>, options: TestEngineOptions = {}) {
    refuseUnknown(options, ENGINE);
    this.#make = typeof app === "function" ? app : () => app;
    this.#timers = new Timers(Date.parse(timeField(options.begins ?? "2026-01-01T00:00:00Z", "begins")));
    this.#lost = numbers(options.crashAfter);
    this.#storedBefore = numbers(options.storedCrashAfter);
    const registry = this.#make();
    this.#endpoint = endpointOf(registry);
    const workflows = registry.definitions.map(declared);
    this.#world = new World(new Map(workflows.map((each) => [each.name, each])), this.#timers);
    this.#faults = new Faults(options.faults ?? []);
    this.#events = new Events(this.#world);
    this.#world.ended = (run) => this.#events.runEnded(run);
    this.#answers = new Answers({
      world: this.#world,
      events: this.#events,
      stubs: new Map(Object.entries(options.stubs ?? {}).map(([name, value]) => [name, stubOf(value)])),
      encode: (output) => this.#endpoint.pipeline.encode(output, "run"),
      decode: (output) => this.#endpoint.pipeline.decode(output, "run"),
      waits: (step) => this.#waits(step),
    });
  }

  /** Virtual time. */
  get now(): Date {
    return new Date(this.#timers.nowMs);
  }

  /** All runs so far, in the order of their start. */
  get runs(): readonly TestRun[] {
    return this.#world.runs;
  }

  /** How many ops the function has answered, over all runs: what `crashAfter` counts. */
  get ops(): number {
    return this.#ops;
  }

  /** Ids of steps that `send(…, { whenWaiting })` was told of and that no run has waited in. */
  get unsent(): string[] {
    return [...this.#scripted].filter(([, sends]) => sends.length > 0).map(([step]) => step);
  }

  /** Starts a run, and lets time pass until it has ended. */
  run<Output = any>(workflow: string, data?: object | null, options?: StartOptions): Promise<TestRun<Output>>;
  run<W extends Workflow<any, any>>(
    workflow: W,
    data?: DataOfWorkflow<W> | null,
    options?: StartOptions,
  ): Promise<TestRun<Jsonified<OutputOfWorkflow<W>>>>;
  async run(workflow: Named, data?: object | null, options: StartOptions = {}): Promise<TestRun> {
    return this.#alone(async () => {
      const run = await this.#started(workflow, data, options);
      await this.#until(Number.POSITIVE_INFINITY, run);
      this.#checkIfIdle();
      return run;
    });
  }

  /** Starts a run, and executes what it comes to before time has to pass. */
  start<Output = any>(workflow: string, data?: object | null, options?: StartOptions): Promise<TestRun<Output>>;
  start<W extends Workflow<any, any>>(
    workflow: W,
    data?: DataOfWorkflow<W> | null,
    options?: StartOptions,
  ): Promise<TestRun<Jsonified<OutputOfWorkflow<W>>>>;
  async start(workflow: Named, data?: object | null, options: StartOptions = {}): Promise<TestRun> {
    return this.#alone(async () => {
      const run = await this.#started(workflow, data, options);
      await this.#until(this.#timers.nowMs);
      return run;
    });
  }

  /** Sends an event: what it came to, once its runs have gone on. Null for one that is sent later. */
  send<Name extends NameOf<Declares>>(name: Name, data?: DataOf<Declares, Name>): Promise<Sent>;
  send<Name extends NameOf<Declares>>(
    name: Name,
    data: DataOf<Declares, Name> | undefined,
    options: { id: string },
  ): Promise<Sent>;
  send<Name extends NameOf<Declares>>(
    name: Name,
    data: DataOf<Declares, Name> | undefined,
    options: SendOptions,
  ): Promise<Sent | null>;
  async send(name: string, data: object = {}, options: SendOptions = {}): Promise<Sent | null> {
    return this.#alone(async () => {
      const sent = await this.#sent(name, data, options);
      await this.#until(this.#timers.nowMs);
      return sent;
    });
  }

  /** Lets time pass, and executes what is due meanwhile. */
  async advance(duration: Duration): Promise<void> {
    await this.#alone(() => this.#until(this.#timers.nowMs + parseDuration(duration)));
  }

  /** Lets time pass until the run has ended. */
  async finish<Output>(run: TestRun<Output>): Promise<TestRun<Output>> {
    await this.#alone(async () => {
      await this.#until(Number.POSITIVE_INFINITY, run);
      this.#checkIfIdle();
    });
    return run;
  }

  /** Cancels an active run, and its active children. Throws for one that has ended. */
  async cancel(run: TestRun): Promise<void> {
    await this.#alone(async () => {
      if (run.ended) throw new Error(`the run has ended already: ${run.status}`);
      this.#world.end(run as StoredRun, "cancelled");
      await this.#until(this.#timers.nowMs);
    });
  }

  /**
   * Throws UnusedError for what a test has said and what has hit nothing so far: faults, and events for `whenWaiting`.
   *
   * `run` and `finish` do it where they leave no run active; faults of a run are checked where it ends.
   */
  check(): void {
    this.#faults.check(this.#world.runs, this.unsent);
  }

  #checkIfIdle(): void {
    if (this.#world.runs.every(({ ended }) => ended)) this.check();
  }

  async #alone<T>(act: () => Promise<T>): Promise<T> {
    if (this.#isBusy) throw new Error("await one call of the engine before the next");
    this.#isBusy = true;
    try {
      const result = await act();
      this.#faults.checkEnded();
      return result;
    } finally {
      this.#isBusy = false;
    }
  }

  async #started(workflow: Named, data: object | null | undefined, options: StartOptions): Promise<StoredRun> {
    refuseUnknown(options, START);
    if (options.event !== undefined) refuseUnknown(options.event, TRIGGER, { what: "event", prefix: "event." });
    const name = typeof workflow === "string" ? workflow : workflow.name;
    const found = this.#world.workflows.get(name);
    if (found === undefined) {
      const known = [...this.#world.workflows.keys()].join(", ") || "none";
      throw new Error(`the workflow ${JSON.stringify(name)} is not registered; there is ${known}`);
    }
    const { event, key, delay, at, faults } = options;
    if (event !== undefined && data != null)
      throw new TypeError("data and event exclude each other: the event has its own");
    const made = await this.#event(event?.name ?? "runr/api.start", event?.data ?? data ?? {});
    const how = {
      source: event === undefined ? "api" : "event",
      dueMs: this.#when(delay, at),
      idempotencyKey: key,
      faults,
    };
    const { run, isNew } = this.#world.start(found, made, how);
    if (isNew) this.#faults.expect(run);
    else if (faults !== undefined && faults.length > 0) {
      throw new TypeError("the run of this key has begun before: give the faults to the start that begins it");
    }
    return run;
  }

  async #sent(name: string, data: object, options: SendOptions): Promise<Sent | null> {
    refuseUnknown(options, SEND);
    const { id, after, at, whenWaiting } = options;
    const fault = senderFault(name);
    if (fault !== null) throw new TypeError(`${JSON.stringify(name)}: ${fault}`);
    if ([after, at, whenWaiting].filter((each) => each !== undefined).length > 1) {
      throw new TypeError("after, at and whenWaiting exclude each other: give one of them");
    }
    const event = await this.#event(name, data);
    const accept = (): Sent =>
      this.#events.accept({ ...event, ts: this.#timers.nowMs }, id === undefined ? null : `u:${id}`);
    const dueMs = this.#when(after, at);
    if (whenWaiting !== undefined) this.#whenWaiting(whenWaiting, accept);
    else if (dueMs !== null) this.#timers.at(dueMs, accept);
    else return accept();
    return null;
  }

  /** An event as a client with the middleware of the project would send it. */
  async #event(name: string, data: object): Promise<Event> {
    this.#made += 1;
    const { pipeline } = this.#endpoint;
    const event = this.#events.make(name, data, `test ${this.#made}`);
    return pipeline.encodesNothing ? event : { ...event, data: (await pipeline.encodeData(event.data)) as object };
  }

  #when(duration: Duration | undefined, at: Date | string | undefined): number | null {
    if (duration !== undefined && at !== undefined) throw new TypeError("a duration and a time exclude each other");
    if (at !== undefined) return Date.parse(timeField(at, "at"));
    return duration === undefined ? null : this.#timers.nowMs + parseDuration(duration);
  }

  #whenWaiting(step: string, send: Action): void {
    const isWaiting = this.#world.runs.some(
      ({ openStep }) => openStep?.id === step && openStep.kind === "wait_for_event",
    );
    if (isWaiting) send();
    else this.#scripted.set(step, [...(this.#scripted.get(step) ?? []), send]);
  }

  #waits(step: StoredStep): void {
    const send = this.#scripted.get(step.id)?.shift();
    if (send !== undefined) this.#timers.at(this.#timers.nowMs, send);
  }

  /** Executes what is due until then; no longer than until this run has ended. */
  async #until(ms: number, run?: TestRun): Promise<void> {
    await this.#execute();
    while (run === undefined || !run.ended) {
      const action = this.#timers.next(ms);
      if (action === undefined) break;
      action();
      await this.#execute();
    }
    if (ms !== Number.POSITIVE_INFINITY) this.#timers.nowMs = Math.max(this.#timers.nowMs, ms);
  }

  async #execute(): Promise<void> {
    for (let run = this.#world.ready.shift(); run !== undefined; run = this.#world.ready.shift()) {
      this.#invocations += 1;
      if (this.#invocations > MOST_INVOCATIONS) throw new Error(`${MOST_INVOCATIONS} invocations, and no end`);
      await this.#invoke(run);
    }
  }

  async #invoke(run: StoredRun): Promise<void> {
    run.status = "running";
    run.startedMs ??= this.#timers.nowMs;
    const before = new Map(run.executed);
    const answer = await this.#endpoint.answer(executeRequest(run, this.#timers.nowMs, this.#room(run)), probeOf(run, this.#faults));
    if (answer.status !== 200) {
      const message = `the function answered ${answer.status}: ${answer.body.slice(0, 1024)}`;
      this.#answers.functionFailed(run, { name: "FunctionHttpError", message });
      return;
    }
    const ops = opsOf(answer);
    const made = ops.map((_op, index) => this.#ops + index + 1);
    this.#ops += ops.length;
    if (made.some((number) => this.#lost.has(number))) {
      for (const [step, times] of run.executed) count(run.lost, step, times - (before.get(step) ?? 0));
      this.#endpoint = endpointOf(this.#make());
      this.#answers.functionFailed(run, CRASHED, {}, "crash");
      return;
    }
    await this.#answers.apply(run, ops);
    if (made.some((number) => this.#storedBefore.has(number))) this.#endpoint = endpointOf(this.#make());
  }

  /** `max_ops` of the next request; after a failed attempt of the function, steps go one by one for a while. */
  #room(run: StoredRun): number | null {
    const most = this.#world.workflows.get(run.workflow)?.maxOps ?? null;
    if (most === null) return null;
    if (run.failures > 0) run.oneByOneUntil = run.placed + most;
    return run.placed < run.oneByOneUntil ? null : most;
  }
}

/** Executes what the test says in place of the functions of steps, and counts. */
function probeOf(run: StoredRun, faults: Faults): Probe {
  return {
    body: (stepId, call) => () => {
      count(run.executed, stepId, 1);
      const fault = faults.take(run, stepId);
      return fault === undefined ? call.body?.() : fault.body(...(call.args ?? []));
    },
  };
}

/** The ops of an answer. */
function opsOf(answer: Answer): Op[] {
  return (JSON.parse(answer.body) as { ops: Op[] }).ops;
}

function count(counts: Map<string, number>, step: string, more: number): void {
  if (more > 0) counts.set(step, (counts.get(step) ?? 0) + more);
}

function numbers(given: number | readonly number[] | undefined): Set<number> {
  return new Set(typeof given === "number" ? [given] : (given ?? []));
}

function stubOf(value: unknown): Stub {
  return typeof value === "function" ? (value as Stub) : () => value;
}
