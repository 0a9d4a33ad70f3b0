// npm: bullmq@6.7.0 ioredis@6.0.0
//
// BullMQ. Follows protocol.py, like the peers in Python; it is a single file because it runs where its packages are.

import { createRequire } from "node:module";
import { parseArgs } from "node:util";
import { Queue, Worker } from "bullmq";
import { Redis } from "ioredis";

const DIGITS = 13; // of the due time in ms since 1970 at the start of a payload
const WARM_UP = 200; // messages sent before the clock starts
const SETTLE_MS = 1200; // for the last acks
const BULK = 250; // jobs per call
const CONCURRENCY = 100;

const numbers = { messages: 1000, size: 100, delay: 60, over: 10, after: 5, wait: 120 };
const words = { url: "redis://127.0.0.1:6379/0", setting: "throughput" };
const { values, positionals } = parseArgs({
  options: Object.fromEntries(Object.keys({ ...numbers, ...words }).map((name) => [name, { type: "string" }])),
  allowPositionals: true,
});
const options = { ...words, ...values };
for (const name in numbers) options[name] = Number(values[name] ?? numbers[name]);

const say = (answer, then = () => {}) => process.stdout.write(JSON.stringify(answer) + "\n", then);
const connect = () => new Redis(options.url, { maxRetriesPerRequest: null });
const now = () => performance.timeOrigin + performance.now(); // ms since 1970, with fractions
const cpuSeconds = () => (({ user, system }) => (user + system) / 1e6)(process.cpuUsage());

const filler = "x".repeat(options.size - DIGITS);
const dueLater = () => Math.round(now() + options.delay * 1000);

function job(due) {
  const timestamp = Date.now();
  const opts = { timestamp, delay: Math.max(due - timestamp, 1), removeOnComplete: true };
  return { name: "handle", data: { payload: `${due}${filler}` }, opts };
}

async function sendEach(queue, count) {
  for (let i = 0; i < count; i++) {
    const { name, data, opts } = job(dueLater());
    await queue.add(name, data, opts);
  }
}

async function sendBulk(queue, count, due = dueLater) {
  for (let start = 0; start < count; start += BULK) {
    const size = Math.min(BULK, count - start);
    await queue.addBulk(Array.from({ length: size }, (_, place) => job(due(start + place))));
  }
}

async function withQueue(work) {
  const queue = new Queue("bench", { connection: connect() });
  await queue.waitUntilReady();
  say(await work(queue));
  process.exit(0);
}

const timed = (send) =>
  withQueue(async (queue) => {
    await send(queue, WARM_UP);
    const started = performance.now();
    await send(queue, options.messages);
    return { seconds: (performance.now() - started) / 1000, messages: options.messages };
  });

const filled = (due) =>
  withQueue(async (queue) => {
    await sendBulk(queue, options.messages, due());
    return { messages: options.messages };
  });

function spread() {
  const start = now() + options.after * 1000;
  return (place) => Math.round(start + (options.over * 1000 * place) / options.messages);
}

async function consume() {
  const handled = [];
  let cpuAtReady = 0;
  let finished = false;

  function finish() {
    if (finished) return;
    finished = true;
    const cpu = cpuSeconds();
    setTimeout(() => {
      const times = handled.map(([at]) => at / 1000).sort((a, b) => a - b);
      const answer = {
        messages: times.length,
        first: times[0] ?? null,
        warm: times[Math.ceil(times.length / 10) - 1] ?? null,
        last: times.at(-1) ?? null,
        lateness_ms: handled.map(([at, due]) => Math.round((at - Number(due)) * 100) / 100),
        cpu_seconds: cpu,
        cpu_at_ready: cpuAtReady,
      };
      say(answer, () => process.exit(0)); // exiting at once would cut off a long answer
    }, SETTLE_MS);
  }

  function lookAgain(since) {
    setTimeout(() => {
      const newest = handled.at(-1)?.[0] ?? since;
      if (newest > since) lookAgain(newest);
      else finish();
    }, since + options.wait * 1000 - now());
  }

  async function handle({ data }) {
    handled.push([now(), data.payload.slice(0, DIGITS)]);
    if (handled.length === options.messages) finish();
  }

  const worker = new Worker("bench", handle, {
    connection: connect(),
    concurrency: CONCURRENCY,
    removeOnComplete: { count: 0 },
  });
  worker.on("error", (error) => console.error(error));
  await worker.waitUntilReady();
  cpuAtReady = cpuSeconds();
  process.stdout.write("ready\n");
  lookAgain(now());
}

const verbs = {
  describe: () =>
    say({
      peer: "BullMQ",
      version: createRequire(import.meta.url)("bullmq/package.json").version,
      language: "Node.js",
      throughput: `Worker concurrency ${CONCURRENCY} (docs: 100 to 300 is standard), removeOnComplete, addBulk of ${BULK} (docs: 100 to 500 small jobs); ioredis`,
      latency: "the same: it blocks until the next delayed job is due, and Redis ends this wait up to 0.1 s late at its default hz of 10",
      bulk: true,
      note: "Completed jobs leave an entry in a stream of events, which is trimmed to about 10,000.",
    }),
  "send-one": () => timed(sendEach),
  "send-bulk": () => timed(sendBulk),
  fill: () => filled(() => dueLater),
  trickle: () => filled(spread),
  consume,
};
if (!(positionals[0] in verbs)) throw new Error(`no verb ${positionals[0]}: there are ${Object.keys(verbs).join(", ")}`);
await verbs[positionals[0]]();
