// The official JavaScript client, driven by lines of JSON: `{"call": "getTask", "params": {…}}` in, and for each thing
// that comes of it a line out, `{"value": …}`, and last `{"end": true}` or `{"error": {…}}`. It judges nothing itself:
// what the client made of an answer is written in the protocol's JSON, by the client's own types.
//
// node judge.mjs ADDRESS [BINDING], where the binding `0.3` is JSON-RPC of that version of the protocol
import { createInterface } from "node:readline";
import * as a2a from "@a2a-js/sdk";
import {
  ClientFactory,
  ClientFactoryOptions,
  DefaultAgentCardResolver,
  JsonRpcTransportFactory,
} from "@a2a-js/sdk/client";

const LONGEST_CALL_MS = 20_000;
const TOKEN = process.env.TOKEN;
const REQUESTS = {
  sendMessage: a2a.SendMessageRequest,
  sendMessageStream: a2a.SendMessageRequest,
  getTask: a2a.GetTaskRequest,
  cancelTask: a2a.CancelTaskRequest,
  listTasks: a2a.ListTasksRequest,
  resubscribeTask: a2a.SubscribeToTaskRequest,
  createTaskPushNotificationConfig: a2a.TaskPushNotificationConfig,
  getTaskPushNotificationConfig: a2a.GetTaskPushNotificationConfigRequest,
  listTaskPushNotificationConfig: a2a.ListTaskPushNotificationConfigsRequest,
  deleteTaskPushNotificationConfig: a2a.DeleteTaskPushNotificationConfigRequest,
};
const ANSWERS = {
  sendMessage: (sent) => ("messageId" in sent ? a2a.Message : a2a.Task).toJSON(sent),
  sendMessageStream: a2a.StreamResponse.toJSON,
  getTask: a2a.Task.toJSON,
  cancelTask: a2a.Task.toJSON,
  listTasks: a2a.ListTasksResponse.toJSON,
  resubscribeTask: a2a.StreamResponse.toJSON,
  createTaskPushNotificationConfig: a2a.TaskPushNotificationConfig.toJSON,
  getTaskPushNotificationConfig: a2a.TaskPushNotificationConfig.toJSON,
  listTaskPushNotificationConfig: a2a.ListTaskPushNotificationConfigsResponse.toJSON,
  deleteTaskPushNotificationConfig: () => null,
};

const say = (line) => process.stdout.write(JSON.stringify(line) + "\n");

async function* answers(client, { call, params }) {
  if (call === "card") {
    yield a2a.AgentCard.toJSON(client.agentCard);
    return;
  }
  if (call === "extendedCard") {
    yield a2a.AgentCard.toJSON(await client.getAgentCard());
    return;
  }
  const options = { signal: AbortSignal.timeout(LONGEST_CALL_MS) };
  const answer = client[call](REQUESTS[call].fromJSON(params), options);
  if (Symbol.asyncIterator in answer) {
    for await (const event of answer) yield ANSWERS[call](event);
  } else {
    yield ANSWERS[call](await answer);
  }
}

const plainFetch = globalThis.fetch;
if (TOKEN) {
  globalThis.fetch = (url, init = {}) => {
    const headers = new Headers(init.headers);
    headers.set("Authorization", `Bearer ${TOKEN}`);
    return plainFetch(url, { ...init, headers });
  };
}

// A client of 0.3 knows the fields of that version alone.
async function formerCard(url, init) {
  const { supportedInterfaces, ...card } = await (await fetch(url, init)).json();
  return Response.json(card);
}

function options(binding) {
  if (binding !== "0.3") return binding ? { preferredTransports: [binding] } : {};
  const legacyCompat = { enabled: true };
  return {
    transports: [new JsonRpcTransportFactory({ legacyCompat })],
    cardResolver: new DefaultAgentCardResolver({ legacyCompat, fetchImpl: formerCard }),
  };
}

async function main(address, binding) {
  const chosen = options(binding);
  const factory = new ClientFactory(ClientFactoryOptions.createFrom(ClientFactoryOptions.default, chosen));
  const client = await factory.createFromUrl(address);
  for await (const line of createInterface({ input: process.stdin })) {
    try {
      for await (const value of answers(client, JSON.parse(line))) say({ value });
      say({ end: true });
    } catch (error) {
      say({ error: { name: error.name, message: error.message, code: error.code ?? null } });
    }
  }
}

await main(...process.argv.slice(2));
