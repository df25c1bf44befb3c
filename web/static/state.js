// What the console knows: one store, changed only here and in sync.js and events.js, drawn by the views. Never asks the server.

import { ENDED } from "./format.js";

export const state = {
  sessions: [], // newest first, as the server lists them
  moreSessions: "", // cursor of the next page; empty when there is none
  current: null, // id of the open session; null for a chat that is not begun yet
  incognito: false, // whether the chat that is not begun yet is to be incognito
  missing: false, // there is no session of the id that is open
  loaded: false, // the open session's log has been read
  messages: [], // the open session's log, oldest first
  earlier: false, // there are messages before the first one here
  jobs: new Map(), // id -> JOB, of all sessions
  moreJobs: "",
  turns: new Map(), // task id -> {session, briefing, text, cut, finished}: what the event stream says runs now
  outbox: [], // sent, and not in the log yet: {session, id, text, task, error, known}
  stopping: new Set(), // tasks whose stop was asked for
  lost: false, // the event stream is down
  problems: new Map(), // load -> the error it failed with last
  panel: false,
};

const views = [];
let due = false;

export const addView = (draw) => views.push(draw);

/** Draws soon, once for all that changed meanwhile. A timer and not a frame, so that hidden tabs stay true too. */
export function changed() {
  if (due) return;
  due = true;
  setTimeout(drawNow, 16);
}

/** Draws at once: what is typed in the next moment must not meet the view of before. */
export function drawNow() {
  due = false;
  for (const draw of views) draw();
}

/** Takes a job in, unless what we hold is newer: an ended attempt never runs again, a dismissed one stays dismissed. */
export function putJob(job) {
  const known = state.jobs.get(job.id);
  const attempt = (known?.attempts ?? 0) - (job.attempts ?? 0);
  if (known && (attempt > 0 || (attempt === 0 && ENDED.has(known.status) && !ENDED.has(job.status)))) return;
  const merged = { ...known, ...worded(job, attempt === 0 ? known : null) };
  if (known && attempt === 0 && known.dismissed) merged.dismissed = true;
  merged.follow_up = job.follow_up; // said only of an attempt that goes on from another
  merged.erased = job.erased === true; // said only of a job whose report was erased
  // An event brings a long question clipped; the whole one stays, or is read next.
  const [before, now] = [known?.question, job.question];
  if (now && before?.question === now.question && before.detail.length > now.detail.length) merged.question = before;
  if (known && known.excerpt !== job.excerpt && job.excerpt_html === undefined) delete merged.excerpt_html;
  state.jobs.set(job.id, merged);
  changed();
}

/** An incognito job comes without words where it is not named: those that we have of it stay. */
function worded(job, known) {
  if (!job.incognito || job.description) return job;
  if (!known?.description) return { ...job, description: "Incognito job" };
  const { description, prompt, follow_up, question } = known;
  const error = known.error?.reason === job.error?.reason ? known.error : job.error;
  return { ...job, description, prompt, follow_up, error, question: job.status === "input_required" ? question : null };
}

/** Takes in a list, newest first: the store holds those of one millisecond in the server's order, oldest first. */
export function putJobs(listed) {
  for (const job of listed.toReversed()) {
    putJob(job);
    const kept = state.jobs.get(job.id);
    state.jobs.delete(job.id);
    state.jobs.set(job.id, kept);
  }
}

/** Takes in a session's newest page; earlier pages stay where the two overlap, so that no gap hides between them. */
export function putNewest(messages, more) {
  const ids = new Set(messages.map((message) => message.id));
  const overlap = state.messages.some((message) => ids.has(message.id));
  const before = overlap ? state.messages.slice(0, state.messages.findIndex((message) => ids.has(message.id))) : [];
  if (before.length === 0) state.earlier = more;
  state.messages = [...before, ...messages];
  state.loaded = true;
  dropSent();
  changed();
}

/** What stands in the log now leaves the outbox; two equal messages need two in the log. */
function dropSent() {
  const taken = new Set();
  const inLog = ({ session, task, id, text, known }) =>
    session === state.current &&
    state.messages.find((message) => {
      const same = (task && message.task_id === task) || message.id === id || (message.text === text && !known.has(message.id));
      return same && message.role === "user" && !taken.has(message.id) && taken.add(message.id);
    });
  state.outbox = state.outbox.filter((sent) => !inLog(sent));
}

export const sessionJobs = (session) => [...state.jobs.values()].filter((job) => job.session === session);
export const isLive = (job) => !ENDED.has(job.status);
/** Oldest first; equal times stay as the store holds them. */
export const byAge = (jobs) => jobs.toSorted((a, b) => (a.created_at > b.created_at) - (a.created_at < b.created_at));
export const sessionTitle = (session) => session?.title || (session?.incognito ? "Incognito chat" : "Untitled chat");
export const findSession = (id) => state.sessions.find((session) => session.id === id);

/** The turns that run in a session: what its log says, or the stream told, or else only that the list said so. */
export function turnsRunning(session) {
  if (state.lost) return [];
  const known = session === state.current ? openTurns() : [...state.turns.values()].filter((turn) => turn.session === session);
  const running = known.filter((turn) => !turn.finished);
  const listed = findSession(session);
  return running.length === 0 && listed?.running > (listed?.parked ?? 0) ? [{}] : running;
}

export const WAITING = new Set(["queued", "submitted"]);
const OVER = new Set(["completed", "failed", "canceled", "rejected", "input_required", "auth_required"]);
/** A task's state without its protocol's dress: `TASK_STATE_WORKING`, `input-required` and `working` read alike. */
export const plainState = (name) => (name ?? "").toLowerCase().replace("task_state_", "").replaceAll("-", "_");

/** The open session's turns that have not ended, oldest first: `{task, briefing, text, cut}`. */
export function openTurns() {
  const open = new Map();
  if (state.lost) return []; // what we knew may have ended since
  for (const { task_id: task, state: name, kind } of state.messages) {
    if (!task) continue;
    if (!name || OVER.has(plainState(name)) || WAITING.has(plainState(name)) || state.turns.get(task)?.finished) open.delete(task);
    else open.set(task, { task, briefing: kind === "nudge" || Boolean(open.get(task)?.briefing), text: "" });
  }
  for (const [task, turn] of state.turns) {
    if (turn.session !== state.current || hasAnswer(task) || (turn.finished && !turn.text)) continue;
    open.set(task, { ...turn, task, briefing: turn.briefing ?? open.get(task)?.briefing });
  }
  return [...open.values()];
}

const hasAnswer = (task) =>
  state.messages.some((message) => message.task_id === task && message.kind === "agent" && OVER.has(plainState(message.state)));
