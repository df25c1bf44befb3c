// Which ended jobs this browser has not shown yet: for each session, and for all (`*`), the last end that was on screen.

import { serverNow } from "./api.js";
import { changed, isLive, state } from "./state.js";

const KEY = "outrider.seen";
let seen = null;

function stored(access) {
  try {
    return access();
  } catch {
    return seen; // storage is off, or holds what we did not write: the marks last as long as the page
  }
}

const read = () => stored(() => JSON.parse(localStorage.getItem(KEY)));
const write = () => stored(() => localStorage.setItem(KEY, JSON.stringify(seen)));

/** To a browser that comes for the first time, everything up to now is old. */
export function openUnread() {
  seen = read();
  if (!seen) {
    seen = { "*": new Date(serverNow()).toISOString() };
    write();
  }
  addEventListener("storage", (event) => {
    if (event.key === KEY) seen = read() ?? seen;
    changed();
  });
}

export function unread() {
  const fresh = (job) => !job.dismissed && !isLive(job) && job.completed_at > seen["*"] && job.completed_at > (seen[job.session] ?? "");
  return seen ? [...state.jobs.values()].filter(fresh) : [];
}

/** Marks a session's ended jobs as seen, or with `*` everybody's. */
export function markSeen(session) {
  const fresh = unread().filter((job) => session === "*" || job.session === session);
  if (fresh.length === 0) return;
  if (session === "*") seen = {};
  seen[session] = fresh.map((job) => job.completed_at).sort().at(-1);
  write();
  changed();
}
