// A substitute for `env.AI` in JavaScript, according to its documentation: `run` is async, options are the third
// argument, a stream is a ReadableStream of bytes, and an error is thrown as "<code>: <text>".
// https://developers.cloudflare.com/workers-ai/configuration/bindings/

class InferenceUpstreamError extends Error {
  constructor(message) {
    super(message);
    this.name = "InferenceUpstreamError";
  }
}

const isPlain = (value) => Object.getPrototypeOf(value) === Object.prototype;
const vector = (text) => [text.length, 1, 0.5];
const calls = [];
const cancelled = [];
const jobs = new Map();
let busy = 0;

function embed({ text }) {
  return { shape: [text.length, 3], data: text.map(vector), pooling: "mean" };
}

function queue(inputs, options) {
  if (inputs.requests && !options.queueRequest) throw new InferenceUpstreamError("5006: requests without queueRequest");
  if (inputs.requests) {
    const id = `00000000-0000-4000-8000-${String(jobs.size).padStart(12, "0")}`;
    jobs.set(id, { polls: 0, requests: inputs.requests });
    return { status: "queued", request_id: id, model: "@cf/baai/bge-m3" };
  }
  const job = jobs.get(inputs.request_id);
  if (!job) throw new InferenceUpstreamError("5004: unknown request_id");
  if (job.polls++ < 1) return { status: "running", request_id: inputs.request_id };
  const responses = job.requests.map((request, id) => ({
    id,
    result: embed(request),
    success: true,
    external_reference: request.external_reference ?? null,
  }));
  return { responses: responses.reverse(), usage: { prompt_tokens: 3, completion_tokens: 0, total_tokens: 3 } };
}

function stream(words, fails) {
  const bytes = new TextEncoder();
  const events = [...words.map((word) => `data: ${JSON.stringify({ response: word })}\n\n`), "data: [DONE]\n\n"];
  // Split inside events and characters, as a network does.
  const all = bytes.encode(events.join(""));
  let at = 0;
  return new ReadableStream({
    async pull(controller) {
      await new Promise((done) => setTimeout(done, 1));
      if (fails && at > 40) return controller.error(new Error("Network connection lost."));
      if (at >= all.length) return controller.close();
      controller.enqueue(all.slice(at, (at += 7)));
    },
    cancel() {
      cancelled.push(true);
    },
  });
}

// With `returnRawResponse`, an answer or an error is a Response.
async function raw(model, inputs, options) {
  const headers = { "cf-ai-neurons": "1.50", "cf-ray": "0123456789abcdef-ZRH" };
  try {
    const answer = await AI.run(model, inputs, options);
    if (answer instanceof ReadableStream) return new Response(answer, { headers });
    return Response.json(answer, { headers });
  } catch ({ message }) {
    const [, code, text] = /^(\d+): (.*)$/.exec(message);
    const body = { internalCode: Number(code), httpCode: 429, name: "AiError", message: text };
    return Response.json(body, { status: 429, headers: { ...headers, "retry-after": "7" } });
  }
}

export const AI = {
  calls,
  cancelled,
  beBusy(times) {
    busy = times;
  },
  async run(model, inputs, options = {}) {
    if (!isPlain(inputs) || !isPlain(options)) throw new TypeError("run takes plain objects");
    if (options.returnRawResponse) return raw(model, inputs, { ...options, returnRawResponse: undefined });
    calls.push(JSON.stringify([model, inputs, options]));
    await new Promise((done) => setTimeout(done, 1));
    if (options.rejectIfBusy && busy-- > 0) {
      throw new InferenceUpstreamError("3040: Capacity temporarily exceeded, please try again.");
    }
    if (inputs.requests || inputs.request_id) return queue(inputs, options);
    if (inputs.text) return embed(inputs);
    if (inputs.contexts) return { response: inputs.contexts.map(({ text }, id) => ({ id, score: 1 / (1 + text.length) })) };
    if (model.endsWith("/null")) return null;
    if (model.endsWith("/undefined")) return undefined;
    if (model.endsWith("/silent")) return new ReadableStream({ pull: () => new Promise(() => {}), cancel: () => void cancelled.push(true) });
    if (model.endsWith("/whole")) return new Blob([JSON.stringify({ response: "Ganz 🌤" })]).stream();
    if (model.endsWith("/gone")) throw new InferenceUpstreamError("5007: No such model or task");
    if (inputs.stream) return stream(["Grüße ", "aus ", "dem ", "Worker 🌤"], model.endsWith("/breaks"));
    const usage = { prompt_tokens: 5, completion_tokens: 2, total_tokens: 7 };
    if (!inputs.tools) return { response: "Hello from JavaScript", tool_calls: [], usage };
    return { response: null, tool_calls: [{ name: "weather", arguments: { city: "Zürich" } }], usage };
  },
  async models() {
    return [{ name: "@cf/baai/bge-m3" }];
  },
};
