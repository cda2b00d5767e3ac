// Serve a Worker on this machine, with the substitute for `env.AI`: node serve.mjs worker.mjs. Print its URL.
import { createServer } from "node:http";
import { pathToFileURL } from "node:url";
import { AI } from "../pyodide/env_ai.mjs";

const { default: worker } = await import(pathToFileURL(process.argv[2]).href);
const env = { AI, BATCH_KEY: "key-of-the-worker" };
const server = createServer(async (incoming, outgoing) => {
  const chunks = [];
  for await (const chunk of incoming) chunks.push(chunk);
  const { method, url, headers } = incoming;
  const body = chunks.length ? Buffer.concat(chunks) : undefined;
  const reply = await worker.fetch(new Request(`http://worker${url}`, { method, headers, body }), env);
  outgoing.writeHead(reply.status, Object.fromEntries(reply.headers));
  outgoing.end(Buffer.from(await reply.arrayBuffer()));
});
server.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${server.address().port}`));
