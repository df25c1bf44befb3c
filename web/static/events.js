// The one event stream, of all sessions, into the store. Believes no gap: after one, everything is read again. Beside it,
// while an incognito chat is open, that one's own: pieces of its answers come to who names it.

import { addView, changed, findSession, putJob, state } from "./state.js";
import { loadChatJobs, loadMessages, loadSessions, reconcile } from "./sync.js";

const SHOWN_CHARS = 200_000; // of an unfinished answer; the whole one comes with the log

const HANDLERS = {
  "turn.started": started,
  "turn.delta": delta,
  "turn.finished": finished,
  "background.queued": job,
  "background.started": job,
  "background.completed": job,
  reset: () => again(),
};

let onEnded = () => {};
let aside = null; // {session, source}: the stream of the open incognito chat

/** Opens the stream and keeps it open; `ended` is told of each job whose end was seen as it happened. */
export function listen(ended) {
  onEnded = ended;
  connect(0);
  addView(hearAside);
}

function hearAside() {
  const quiet = findSession(state.current)?.incognito || aside?.session === state.current; // it may not be listed yet
  openAside(quiet ? state.current : null);
}

function openAside(session) {
  if (session === (aside?.session ?? null)) return;
  aside?.source.close();
  aside = session && { session, source: new EventSource(`/api/events?session=${encodeURIComponent(session)}`) };
  aside?.source.addEventListener("turn.delta", (event) => delta(JSON.parse(event.data)));
}

/** Hears a new incognito chat, which is open, before anything is said in it. */
export function listenAside(session) {
  openAside(session);
  const { source } = aside;
  return new Promise((heard) => (source.onopen = source.onerror = heard));
}

function connect(failures) {
  const source = new EventSource("/api/events");
  source.onopen = () => {
    failures = 0;
    state.lost = false;
    again();
  };
  // The browser would try again by itself, but not after every kind of failure, and without saying so.
  source.onerror = () => {
    source.close();
    failures += 1;
    if (failures > 1) lose(failures);
    setTimeout(() => connect(failures), failures === 1 ? 100 : Math.min(5000, 500 * 2 ** (failures - 2)));
  };
  for (const [name, handle] of Object.entries(HANDLERS)) {
    source.addEventListener(name, (event) => handle(event.data ? JSON.parse(event.data) : {}));
  }
}

/** Nobody tells us of ends now: while this lasts, nothing is said to run. */
function lose(failures) {
  state.lost = true;
  if (failures === 2) loadSessions(); // where we are refused, the answer says why
  changed();
}

function again() {
  state.turns.clear();
  return reconcile();
}

function started({ session, task_id: task, origin }) {
  state.turns.set(task, { session, briefing: origin === "background-resume", text: "", cut: false });
  changed();
  refresh(session);
}

function delta({ session, task_id: task, text, attempt }) {
  let turn = state.turns.get(task);
  if (turn?.finished) return;
  if (!turn) state.turns.set(task, (turn = { session, text: "", cut: true })); // we came in the middle
  if ((turn.attempt ??= attempt) !== attempt) Object.assign(turn, { text: "", attempt }); // the model is asked again
  if (turn.text.length < SHOWN_CHARS) turn.text += text;
  changed();
}

/** The preview stays until the log holds the answer, and goes in the same drawing. */
async function finished({ session, task_id: task, folded_into: into }) {
  if (into) return refresh(session); // a message that the turn at work took up: that one goes on
  const turn = state.turns.get(task) ?? { session, text: "" };
  state.turns.set(task, { ...turn, finished: true });
  state.stopping.delete(task);
  const listed = findSession(session);
  if (listed) listed.running = false;
  changed();
  await refresh(session);
  state.turns.delete(task);
  changed();
}

function refresh(session) {
  return Promise.all([loadSessions(), session === state.current ? Promise.all([loadMessages(), loadChatJobs()]) : null]);
}

function job(news) {
  const known = state.jobs.get(news.id);
  putJob(news);
  if (news.session === state.current) {
    loadChatJobs(); // the excerpt as HTML, and the messages that an end may bring
    loadMessages();
  }
  if (!findSession(news.session)) loadSessions();
  if (news.completed_at && !known?.completed_at) onEnded(news);
}
