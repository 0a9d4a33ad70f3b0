// Sends a message to a queue of delayq, as docs/protocol.md describes.
//
//     npm install
//     delayq protocol --script send > send.lua
//     node producer.js emails '{"to": "ann@example.org"}' --delay 60000 --id welcome-ann
//     node producer.js emails '{"user_id": 42}' --task welcome
//
// The server is the one that REDIS_URL names. Prints the id and when the message is due.

import { randomUUID } from "node:crypto";
import { readFileSync } from "node:fs";
import { parseArgs } from "node:util";
import { crc32 } from "node:zlib"; // Node 20.15 or newer
import { Redis } from "ioredis";

const FIXED = ["pending", "garbage", "stats", "bell", "ready", "unack", "retry", "dead", "meta", "events", "held"];
const NEWEST_FORMAT = 2;
const LARGE = 8192;

export class Producer {
  #redis;
  #prefix;

  constructor(redis, script, prefix = "delayq") {
    this.#redis = redis;
    this.#prefix = prefix;
    redis.defineCommand("delayqSend", { lua: script }); // EVALSHA, and EVAL where the server lacks the script
  }

  // Returns { id, dueAt, created }. Throws if the queue is full, or needs a newer script.
  async send(queue, payload, { delayMs = 0, id = randomUUID(), maxRetries = 5, headers = null } = {}) {
    const base = await this.#base(queue, id);
    const envelope = pack([1, 1, Buffer.from(JSON.stringify(payload)), maxRetries, null, headers]);
    const room = envelope.length > LARGE ? [Buffer.alloc(13, "0")] : []; // over which the script writes the time
    const keys = [...FIXED.map((name) => base + name), `${base}msg:${id}`];
    const args = ["", "1", id, `+${delayMs}`, Buffer.concat([...room, envelope])];
    const [due] = await this.#redis.delayqSend(keys.length, ...keys, ...args);
    if (due < -1) throw new Error(`queue ${queue} is full: it takes ${-1 - due} messages`);
    return { id, dueAt: due === -1 ? null : new Date(due), created: due !== -1 };
  }

  // The beginning of the keys of a message's shard.
  async #base(queue, id) {
    const [format, shards] = await this.#redis.hmget(`${this.#prefix}:{${queue}}:meta`, "format", "shards");
    if (Number(format ?? 1) > NEWEST_FORMAT) throw new Error(`queue ${queue} has format ${format}: update this program`);
    const shard = Number(shards ?? 1) > 1 ? crc32(id) % Number(shards) : 0;
    return `${this.#prefix}:{${queue}${shard ? `#${shard}` : ""}}:`;
  }
}

// MessagePack of what an envelope holds: whole numbers from 0, text, bytes, null, lists and objects of fewer than 16.
export function pack(value) {
  if (value === null) return Buffer.from([0xc0]);
  if (Array.isArray(value)) return Buffer.concat([Buffer.from([0x90 | value.length]), ...value.map(pack)]);
  if (Buffer.isBuffer(value)) return Buffer.concat([sized(0xc6, value.length), value]);
  if (typeof value === "string") return Buffer.concat([sized(0xdb, Buffer.byteLength(value)), Buffer.from(value)]);
  if (typeof value === "number") return sized(0xce, value);
  const entries = Object.entries(value);
  return Buffer.concat([Buffer.from([0x80 | entries.length]), ...entries.flat().map(pack)]);
}

// A code, and a number in four bytes.
function sized(code, number) {
  const bytes = Buffer.alloc(5, code);
  bytes.writeUInt32BE(number, 1);
  return bytes;
}

if (process.argv[1] === import.meta.filename) {
  const options = { delay: { type: "string" }, id: { type: "string" }, task: { type: "string" } };
  const { values, positionals } = parseArgs({ options, allowPositionals: true });
  const redis = new Redis(process.env.REDIS_URL ?? "redis://localhost:6379/0");
  const producer = new Producer(redis, readFileSync("send.lua", "utf8"));
  try {
    const sent = await producer.send(positionals[0], JSON.parse(positionals[1]), {
      delayMs: Number(values.delay ?? 0),
      id: values.id,
      headers: values.task ? { "delayq-task": values.task } : null,
    });
    console.log(JSON.stringify(sent));
  } catch (error) {
    console.error(error.message);
    process.exitCode = 1;
  } finally {
    redis.disconnect();
  }
}
