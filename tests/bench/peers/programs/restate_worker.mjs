// The services that Restate is measured with, for the TypeScript SDK: those of restate_worker.py.
import fs from "node:fs";

// The SDK calls Promise.withResolvers, which Node has from version 22 on.
Promise.withResolvers ??= function () {
  let resolve, reject;
  const promise = new this((yes, no) => { resolve = yes; reject = no; });
  return { promise, resolve, reject };
};
const restate = await import("@restatedev/restate-sdk");

const opened = (path) => (path ? fs.openSync(path, "a") : null);
const steps = opened(process.env.STEP_LOG), keys = opened(process.env.KEY_LOG);
const note = (file, text) => { if (file !== null) fs.writeSync(file, `${text}\n`); };
const step = (key, place) => { note(steps, `${key} ${place}`); return { i: place }; };

const first = new Map();
const sleeper = async (ctx, given) => {
  const run = ctx.request().id.toString();
  if (!first.has(run)) first.set(run, Date.now());
  const began = first.get(run);
  await ctx.sleep(given.s * 1000);
  first.delete(run);
  return { late: (Date.now() - began) / 1000 - given.s };
};

const service = restate.service({
  name: "svc",
  handlers: {
    chain: async (ctx, given) => {
      const took = [];
      for (let place = 0; place < given.k; place++) {
        const began = performance.now();
        await ctx.run("s", () => step(given.key, place));
        took.push((performance.now() - began) / 1000);
      }
      return { d: took };
    },
    sleeper,
    waiter: async (ctx, given) => {
      const { id, promise } = ctx.awakeable();
      note(keys, `${given.key} ${id}`);
      return { got: await promise };
    },
    child: async (ctx, given) => await ctx.run("s", () => step(null, given)),
    parent: async (ctx, given) => {
      const calls = [];
      for (let place = 0; place < given.n; place++) calls.push(ctx.serviceClient({ name: "svc" }).child(place));
      return (await restate.RestatePromise.all(calls)).length;
    },
  },
});
// Suspends after a second instead of a minute, so that sleepers hold nothing.
const lazy = restate.service({ name: "lazy", handlers: { sleeper }, options: { inactivityTimeout: 1000 } });
restate.serve({ services: [service, lazy], port: Number(process.env.PORT) });
