// npm's workers-ai-provider, unchanged. Its hosts are fixed, so fetch sends their requests to the emulator.
import { embedMany, generateText, jsonSchema, Output, rerank, stepCountIs, streamText, tool } from "ai";
import { createWorkersAI } from "workers-ai-provider";

const origin = new URL(process.env.EMULATOR_URL).origin;
const real = globalThis.fetch;
globalThis.fetch = (url, init) => {
  const target = new URL(url instanceof Request ? url.url : url);
  return real(origin + target.pathname + target.search, init);
};

const workersai = createWorkersAI({ accountId: "acct", apiKey: "token" });
const LLAMA = "@cf/ibm-granite/granite-4.0-h-micro"; // of the native family
const GEMMA = "@cf/google/gemma-4-26b-a4b-it";
const clock = tool({
  description: "Tells the time in a city",
  inputSchema: jsonSchema({
    type: "object",
    properties: { city: { type: "string", description: "The city" } },
    required: ["city"],
  }),
  execute: async ({ city }) => `14:02 in ${city}`,
});
const found = {};

for (const [name, model] of [["llama", LLAMA], ["gemma", GEMMA]]) {
  found[`${name} text`] = (await generateText({ model: workersai(model), prompt: "Hello" })).text;
  const stream = streamText({ model: workersai(model), prompt: "Hello" });
  let text = "";
  for await (const piece of stream.textStream) text += piece;
  found[`${name} stream`] = text;
  found[`${name} finish`] = await stream.finishReason;
  const agent = await generateText({
    model: workersai(model), prompt: "Time in Oslo?", tools: { clock }, stopWhen: stepCountIs(3),
  });
  found[`${name} agent`] = agent.text;
  const object = await generateText({
    model: workersai(model),
    prompt: "Ann is 41.",
    output: Output.object({
      schema: jsonSchema({ type: "object", properties: { age: { type: "integer" } }, required: ["age"] }),
    }),
  });
  found[`${name} object`] = object.output;
}
const { embeddings } = await embedMany({
  model: workersai.textEmbedding("@cf/baai/bge-base-en-v1.5"), values: ["a", "b"],
});
found.embeddings = embeddings.map((row) => row.length);
const ranked = await rerank({
  model: workersai.reranking("@cf/baai/bge-reranker-base"), query: "cat", documents: ["a dog", "a cat"], topN: 1,
});
found.rerank = ranked.ranking[0].originalIndex;
try {
  await generateText({ model: workersai("@cf/no/model"), prompt: "Hello", maxRetries: 0 });
} catch (error) {
  found.error = error.statusCode ?? String(error);
}
console.log(JSON.stringify(found));
