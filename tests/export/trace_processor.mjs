// What does Perfetto's trace processor answer to SQL on a trace? Prints one list of rows per query, as JSON.
//
//   node trace_processor.mjs ASSETS TRACE QUERY…
//
// ASSETS holds trace_processor.wasm with the two scripts that speak to it, both made from Perfetto's own sources for
// a worker of its page: engine_bundle.node.js starts the module, engine.mjs encodes requests and decodes answers.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import vm from "node:vm";

const CHUNK_BYTES = 32 << 20;
const [assets, trace, ...queries] = process.argv.slice(2);
const { EngineBase } = await import(pathToFileURL(join(assets, "engine.mjs")));

// What the scripts expect of a worker.
Object.defineProperty(globalThis, "self", { value: globalThis });
Object.defineProperty(globalThis, "location", { value: { href: `${pathToFileURL(assets).href}/` } });
globalThis.WorkerGlobalScope = function () {};
console.warn = () => {};

function replaced(text, from, to) {
  if (!text.includes(from)) throw new Error(`engine_bundle.node.js has no ${from}`);
  return text.replace(from, to);
}

let glue = readFileSync(join(assets, "engine_bundle.node.js"), "utf8");
glue = replaced(glue, "this.useMemory64 = hasMemory64Support();", "this.useMemory64 = false;");
glue = replaced(glue, "locateFile: (s) => s,", "locateFile: (s) => s, wasmBinary: globalThis.wasm,");
glue = replaced(glue, "deferredRuntimeInitialized.then(", "globalThis.ready = deferredRuntimeInitialized.then(");
glue = replaced(glue, "new wasm_bridge_1.WasmBridge();", "globalThis.bridge = new wasm_bridge_1.WasmBridge();");
globalThis.wasm = new Uint8Array(readFileSync(join(assets, "trace_processor.wasm")));
vm.runInThisContext(glue);
await globalThis.ready;

class Engine extends EngineBase {
  mode = "WASM";
  id = "tests";

  constructor(port) {
    super();
    this.port = port;
    port.onmessage = (message) => this.onRpcResponseBytes(message.data);
  }

  rpcSendRequestBytes(data) {
    this.port.postMessage(data);
  }
}

const { port1, port2 } = new MessageChannel();
globalThis.bridge.initialize(port1);
const engine = new Engine(port2);
const bytes = new Uint8Array(readFileSync(trace));
for (let at = 0; at < bytes.length; at += CHUNK_BYTES) await engine.parse(bytes.slice(at, at + CHUNK_BYTES));
await engine.notifyEof();

const answers = [];
for (const query of queries) {
  const result = await engine.query(query);
  const columns = result.columns();
  const rows = [];
  for (const row = result.iter({}); row.valid(); row.next()) {
    rows.push(columns.map((name) => row.get(name)));
  }
  answers.push(rows);
}
const text = JSON.stringify(answers, (_, value) => (typeof value === "bigint" ? Number(value) : value));
process.stdout.write(text, () => process.exit(0));
