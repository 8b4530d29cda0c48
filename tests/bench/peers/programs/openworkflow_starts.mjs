// W3 for OpenWorkflow: durable starts that nothing executes.
// node openworkflow_starts.mjs URL: says "ready", waits for a line, starts 5,000 runs, 16 at once, says {"seconds": …}.
import { once } from "node:events";
import { OpenWorkflow } from "openworkflow";
import { BackendPostgres } from "openworkflow/postgres";

const STARTS = 5000, AT_ONCE = 16;
const backend = await BackendPostgres.connect(process.argv[2]);
const chain = new OpenWorkflow({ backend }).defineWorkflow({ name: "chain" }, async () => null);
const start = async (count) => {
  let number = 0;
  await Promise.all([...Array(AT_ONCE)].map(async () => { while (number++ < count) await chain.run({ k: 5 }); }));
};
await start(100);
console.log("ready");
await once(process.stdin, "data");
const began = performance.now();
await start(STARTS);
console.log(JSON.stringify({ seconds: (performance.now() - began) / 1000 }));
process.exit(0);
