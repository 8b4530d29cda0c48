/** An option that a function of the SDK does not have is refused by its name, before anything is sent or runs. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { Client, UnknownOptionError } from "../src/client.js";
import { Workflows } from "../src/index.js";
import { unknownOption } from "../src/known-options.js";
import { TestEngine, everyCrash, fails, returns } from "../src/testing.js";
import { Lines, invoke, registry } from "./engine.js";

const START = "allowed are data, key, delay, at, tags, test, signal";
const EVENT = "allowed are name, data, id, ts";
const LISTED = "from, to, pageSize, signal";

/** A client as plain JavaScript has it, and how many requests it has made. */
function client(): { client: any; asked: () => number } {
  let asked = 0;
  const fetch = async (): Promise<Response> => {
    asked += 1;
    return new Response(JSON.stringify({ id: "01RUN", status: "queued" }), { status: 201 });
  };
  return { client: new Client({ url: "https://api.test", token: "tok", fetch }), asked: () => asked };
}

test("a client refuses it before anything is sent", async () => {
  const wrong: [call: (client: any) => unknown, told: string][] = [
    [(c) => c.start("payment", { idempotencyKey: "p" }), `idempotencyKey: unknown (did you mean key?); ${START}`],
    [(c) => c.start("payment", { idempotency_key: "p" }), `idempotency_key: unknown (did you mean key?); ${START}`],
    [(c) => c.start("payment", { idempotencyKey: undefined }), `idempotencyKey: unknown (did you mean key?); ${START}`],
    [(c) => c.start("payment", { dely: "1h" }), `dely: unknown (did you mean delay?); ${START}`],
    [(c) => c.start("payment", { priority: 1 }), `priority: is not supported yet; ${START}`],
    [(c) => c.start("payment", { amount: 5, rate_limit: 1 }), `amount: unknown; ${START}; rate_limit: is not supported yet; ${START}`],
    [(c) => c.start("payment", null), "options: an object with data, key, delay, at, tags, test, signal, not null"],
    [(c) => c.runs({ statuz: "failed" }), `statuz: unknown (did you mean status?); allowed are workflow, status, tag, q, ${LISTED}`],
    [(c) => c.events({ nmae: "a" }), `nmae: unknown (did you mean name?); allowed are name, source, ${LISTED}`],
    [(c) => c.runs({ page_size: 1 }), `page_size: unknown (did you mean pageSize?); allowed are workflow, status, tag, q, ${LISTED}`],
    [(c) => c.event("01EV", { timeout: 1 }), "timeout: unknown; allowed are signal"],
    [(c) => c.send({ name: "a" }, { id: "k" }), "id: unknown; allowed are test, signal"],
    [(c) => c.send({ name: "a", payload: {} }), `event.payload: unknown (did you mean data?); ${EVENT}`],
    [(c) => c.send([{ name: "a" }, { name: "b", key: undefined }]), `events[1].key: unknown (did you mean id?); ${EVENT}`],
    [(c) => c.run("01R").result({ timeuot: 1 }), "timeuot: unknown (did you mean timeout?); allowed are timeout, signal"],
    [(c) => c.run("01R").get({ steps: true }), "steps: unknown; allowed are signal"],
    [(c) => c.run("01R").cancel({ child: "keep" }), "child: unknown; allowed are children, signal"],
    [(c) => c.run("01R").retry({ from: "a" }), "from: unknown; allowed are signal"],
    [(c) => c.run("01R").replay({ step: "a" }), "step: unknown (did you mean fromStep?); allowed are fromStep, data, signal"],
  ];
  for (const [call, message] of wrong) {
    const asking = client();
    await assert.rejects(async () => call(asking.client), { name: "UnknownOptionError", message });
    assert.equal(asking.asked(), 0, message);
  }
});

test("what is no event is not sent", async () => {
  const asking = client();
  for (const events of ["a", null, [{ data: {} }], [["a"]]]) {
    await assert.rejects(asking.client.send(events), { name: "TypeError", message: /an object with a name/ });
  }
  assert.equal(asking.asked(), 0);
});

test("what a client knows it takes", async () => {
  const asking = client();
  const options = { data: {}, key: "k", delay: undefined, at: new Date(5), tags: ["a"], test: true, signal: undefined };
  assert.equal((await asking.client.start("w", options)).id, "01RUN");
  assert.equal(asking.asked(), 1);
});

test("a step call is refused for good, an event that was sent is not judged again", async () => {
  const wrong: [call: (step: any) => unknown, told: string][] = [
    [(step) => step.sendEvent("x", { name: "foo.bar", payload: { n: 1 } }), `events[0].payload: unknown (did you mean data?); ${EVENT}`],
    [(step) => step.sendEvent("x", [{ name: "a" }, { name: "b", key: null }]), `events[1].key: unknown (did you mean id?); ${EVENT}`],
    [(step) => step.options({ retry: 3 }), "retry: unknown (did you mean retries?); allowed are retries"],
    [(step) => step.options({ retries: 3, priority: 1 }), "priority: is not supported yet; allowed are retries"],
    [
      (step) => step.waitForEvent("x", { event: "e", timeuot: "1d" }),
      "timeuot: unknown (did you mean timeout?); allowed are event, match, if, timeout, lookback",
    ],
    [
      (step) => step.invoke("x", { workflow: "w", payload: {} }),
      "payload: unknown (did you mean data?); allowed are workflow, data, timeout",
    ],
  ];
  for (const [call, message] of wrong) {
    const op = await invoke(async (_ctx, step) => call(step));
    assert.deepEqual([op["op"], op["non_retriable"]], ["run_failed", true]);
    assert.deepEqual([op["error"].name, op["error"].message], ["StepArgumentError", message]);
  }
  const sent = { x: { status: "completed", output: { ids: ["01J"] } } };
  const again = await invoke(async (_ctx, step: any) => step.sendEvent("x", { name: "a", payload: {} }), sent);
  assert.deepEqual(again["output"], { ids: ["01J"] });
});

test("an unknown option within a step is not retried", async () => {
  const asking = client();
  const op = await invoke(async (_ctx, step) => step.run("x", () => asking.client.start("w", { idempotencyKey: "k" })));
  assert.deepEqual([op["op"], op["non_retriable"], op["error"].name], ["step_failed", true, "UnknownOptionError"]);
  assert.equal(asking.asked(), 0);
});

test("a registry, its server and the kit refuse it", async () => {
  const wf: any = registry({ logger: new Lines() });
  wf.workflow("w", {}, () => 1);
  const engine: any = new TestEngine(wf);
  const [Registry, Engine, crash, fail, give] = [Workflows, TestEngine, everyCrash, fails, returns] as any[];
  const wrong: [call: () => unknown, told: RegExp][] = [
    [() => new Registry({ signing_key: "k" }), /^signing_key: unknown \(did you mean signingKey\?\); allowed are signingKey, /],
    [() => new (Client as any)({ apiKey: "k" }), /^apiKey: unknown \(did you mean token\?\); allowed are url, token, /],
    [() => wf.serve({ prot: 1 }), /^prot: unknown \(did you mean port\?\); allowed are host, port, grace, signal$/],
    [() => new Engine(wf, { stub: {} }), /^stub: unknown \(did you mean stubs\?\)/],
    [() => engine.run("w", {}, { idempotencyKey: "k" }), /^idempotencyKey: unknown \(did you mean key\?\)/],
    [() => engine.start("w", null, { event: { name: "a", payload: {} } }), /^event.payload: unknown \(did you mean data\?\)/],
    [() => engine.send("a", {}, { when_waiting: "s" }), /^when_waiting: unknown \(did you mean whenWaiting\?\)/],
    [() => crash(wf, () => undefined, { strict: true }), /^strict: unknown; allowed are same, faults, stubs, begins$/],
    [() => fail("s", null, { time: 1 }), /^time: unknown \(did you mean times\?\); allowed are times$/],
    [() => give("s", 1, { foo: 1 }), /^foo: unknown; allowed are times$/],
  ];
  for (const [call, message] of wrong) {
    await assert.rejects(async () => call(), { name: "UnknownOptionError", message });
  }
  assert.deepEqual(engine.runs, []);
  assert.ok(new UnknownOptionError("wrong") instanceof TypeError);
});

test("another name, a slip and the other case are known for what they are", () => {
  const allowed = ["triggers", "retries", "cancelOn", "timeout"];
  const meant = (name: string): string | undefined => /did you mean (\w+)\?/.exec(unknownOption(name, allowed))?.[1];
  const names = ["retry", "cancel_on", "tiemout", "triger", "zzz", "constructor", "x".repeat(10_000)];
  assert.deepEqual(names.map(meant), ["retries", "cancelOn", "timeout", "triggers", undefined, undefined, undefined]);
});
