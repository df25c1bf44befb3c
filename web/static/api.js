// The server's HTTP surface, one function a call. Holds no state but how far the server's clock is from ours.

let ahead = 0;

/** Now, by the server's clock: what its timestamps are measured against. */
export const serverNow = () => Date.now() + ahead;

/** A refusal of the server's: `status` of HTTP, `code`, message and `details` of its error body. */
export class ApiError extends Error {
  constructor(status, { code = "ERROR", message = `The server answered with status ${status}.`, details = {} } = {}) {
    super(message);
    Object.assign(this, { status, code, details });
  }
}

let refused = () => {};

/** `tell` is called whenever the server wants to know who asks. */
export const whenRefused = (tell) => (refused = tell);

export const UNREACHABLE = "The server cannot be reached.";

/** What went wrong, in words: the server's own, or that there is no server. */
export const explain = (error) => (error instanceof ApiError ? error.message : UNREACHABLE);

// The request's mode stays the default: with `no-referrer`, any other would make the browser send `Origin: null`.
async function call(method, path, { body, signal } = {}) {
  const headers = body === undefined ? {} : { "content-type": "application/json" };
  const response = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body) });
  const date = Date.parse(response.headers.get("date"));
  if (date) ahead = Math.abs(date - Date.now()) > 2000 ? date - Date.now() : 0;
  if (response.ok) return response;
  const answer = await response.json().catch(() => ({}));
  if (response.status === 401) refused();
  throw new ApiError(response.status, answer.error);
}

const json = async (...request) => (await call(...request)).json();

function query(path, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== "");
  return `${path}?${new URLSearchParams(given)}`;
}

const session = (id) => `/api/sessions/${encodeURIComponent(id)}`;
const job = (id) => `/api/background/${encodeURIComponent(id)}`;

/** Who is logged in: `{user, required}`. */
export const whoAmI = () => json("GET", "/api/login");
export const logIn = (token) => json("POST", "/api/login", { body: { token } });
export const logOut = () => call("DELETE", "/api/login");
export const getSessions = (cursor) => json("GET", query("/api/sessions", { cursor }));
export const newSession = (incognito) => json("POST", "/api/sessions", { body: incognito ? { incognito } : {} });
export const getMessages = (id, before) => json("GET", query(`${session(id)}/messages`, { html: 1, before }));
/** `steer`: the turn that runs is to take it up, if it takes another step. */
export const send = (id, { text, id: messageId, steer }) =>
  json("POST", `${session(id)}/messages`, { body: { text, message_id: messageId, ...(steer && { steer }) } });
/** `answer` holds text or data, and the task and question that it is for. */
export const answer = (id, answer) => json("POST", `${session(id)}/messages`, { body: answer });
export const stopTurn = (id, task) => json("POST", `${session(id)}/tasks/${encodeURIComponent(task)}/cancel`);
export const getJobs = (filters) => json("GET", query("/api/background", filters));
export const getJob = (id) => json("GET", job(id));
/** `verb` is one of cancel, dismiss, retry; answers with the job. */
export const actOnJob = (id, verb) => json("POST", `${job(id)}/${verb}`);
/** A further question to a job's worker; answers with the job, which is at work again. */
export const askJob = (id, prompt) => json("POST", `${job(id)}/ask`, { body: { prompt } });
/** A job that takes a page into the knowledge store; answers with the job. */
export const ingest = (id, source, key) => json("POST", "/api/knowledge/ingest", { body: { session: id, source, key } });
/** `content` is a file in base64. */
export const addDocument = (name, content, mediaType) =>
  json("POST", "/api/knowledge/documents", { body: { name, content, media_type: mediaType } });
export const reportHtml = async (id, signal) => (await call("GET", `${job(id)}/report?html=1`, { signal })).text();
export const reportText = async (id) => (await call("GET", `${job(id)}/report`)).text();
export const downloadAddress = (id) => `${job(id)}/report?download=1`;
