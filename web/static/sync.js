// Reads the store from the server again. Every load may be asked for at any time, and is true of a moment after the asking.

import * as api from "./api.js";
import { changed, isLive, putJob, putJobs, putNewest, sessionJobs, state } from "./state.js";

const pages = { sessions: 1, jobs: 1 };
const CHAT_PAGES = 10;
const AGAIN_MS = 3000;
const pause = (ms) => new Promise((done) => setTimeout(done, ms));

/** One load at a time; asked for while it runs, it runs once more, and the promise covers that too. */
function coalesced(load) {
  let running = null;
  let again = false;
  const run = async () => {
    try {
      do {
        await pause(30); // events come in flocks
        again = false;
        await load();
      } while (again);
      state.problems.delete(load);
    } catch (error) {
      state.problems.set(load, error);
      if (passing(error) && !state.lost) setTimeout(ask, AGAIN_MS);
    } finally {
      running = null;
      changed();
    }
  };
  const ask = () => {
    again = true;
    running ??= run();
    return running;
  };
  return ask;
}

const passing = (error) => !(error instanceof api.ApiError) || error.status >= 500 || error.status === 429;

async function readPages(count, get) {
  const answers = [];
  let cursor = "";
  do {
    answers.push(await get(cursor));
    cursor = answers.at(-1).next_cursor ?? "";
  } while (cursor && answers.length < count);
  return { answers, cursor };
}

async function readSessions() {
  const { answers, cursor } = await readPages(pages.sessions, api.getSessions);
  state.sessions = answers.flatMap((answer) => answer.sessions);
  state.moreSessions = cursor;
}

async function readMessages() {
  const id = state.current;
  if (id === null) return;
  try {
    const answer = await api.getMessages(id);
    if (id !== state.current) return;
    state.missing = false;
    putNewest(answer.messages, Boolean(answer.next_cursor));
  } catch (error) {
    if (error.status !== 404 || id !== state.current) throw error;
    state.missing = true;
    putNewest([], false);
    throw new api.ApiError(404, { message: "This chat does not exist, or not any more." });
  }
}

/** All jobs of the open session, dismissed ones too, with their excerpts as HTML; what the server lists no more goes. */
async function readChatJobs() {
  const id = state.current;
  if (id === null) return;
  const before = sessionJobs(id);
  const get = (dismissed) => readPages(CHAT_PAGES, (cursor) => api.getJobs({ session: id, dismissed, html: 1, limit: 200, cursor }));
  const lists = [await get(false), await get(true)]; // in this order, so that one dismissed in between is in both
  const listed = lists.flatMap(({ answers }) => answers.flatMap((answer) => answer.jobs));
  const ids = new Set(listed.map((job) => job.id));
  if (!lists.some(({ cursor }) => cursor)) for (const job of before) if (!ids.has(job.id)) state.jobs.delete(job.id);
  putJobs(listed);
}

/** The panel's jobs: the newest ended ones by page, and all that wait or run, however old. */
async function readJobs() {
  const known = [...state.jobs.values()];
  const [recent, ...live] = await Promise.all([
    readPages(pages.jobs, (cursor) => api.getJobs({ dismissed: false, limit: 50, cursor })),
    ...["queued", "running", "input_required"].map((status) => api.getJobs({ status, limit: 200 })),
  ]);
  const paged = recent.answers.flatMap((answer) => answer.jobs);
  const listed = [...paged, ...live.flatMap((answer) => answer.jobs)];
  const ids = new Set(listed.map((job) => job.id));
  const covered = (job) => isLive(job) || (!job.dismissed && (!recent.cursor || job.created_at >= paged.at(-1).created_at));
  state.moreJobs = recent.cursor;
  putJobs(listed);
  // What should have been listed and was not has ended, was dismissed elsewhere, or is gone.
  await Promise.all(known.filter((job) => !ids.has(job.id) && covered(job)).slice(0, 50).map(readJob));
}

async function readJob({ id }) {
  try {
    putJob(await api.getJob(id));
  } catch (error) {
    if (error.status !== 404) throw error;
    state.jobs.delete(id);
  }
}

export const loadSessions = coalesced(readSessions);
export const loadMessages = coalesced(readMessages);
export const loadChatJobs = coalesced(readChatJobs);
export const loadJobs = coalesced(readJobs);

/** Everything again: at the start, after a gap in the events, when a sleeping page comes back. */
export const reconcile = () => Promise.all([loadSessions(), loadMessages(), loadChatJobs(), loadJobs()]);

export async function loadEarlier() {
  const id = state.current;
  const answer = await api.getMessages(id, state.messages[0]?.id);
  if (id !== state.current) return;
  state.messages = [...answer.messages, ...state.messages];
  state.earlier = Boolean(answer.next_cursor);
  changed();
}

export function loadMore(what) {
  pages[what] += 1;
  return what === "jobs" ? loadJobs() : loadSessions();
}
