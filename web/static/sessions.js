// The list of chats, and which one is open. The address says it (`#s=ID`), so that reload and back do what they should.

import { byId, h, keyed, setText } from "./dom.js";
import { activity, plural } from "./format.js";
import { drawNow, findSession, isLive, sessionJobs, sessionTitle, state, turnsRunning } from "./state.js";
import { loadChatJobs, loadMessages, loadMore, loadSessions } from "./sync.js";
import { unread } from "./unread.js";

const address = (id) => `#s=${encodeURIComponent(id)}`;

/** Opens a chat by its address; `remember: false` keeps the step out of the browser's history. */
export function goTo(id, { remember = true } = {}) {
  if (!remember) history.replaceState(null, "", address(id));
  else if (location.hash !== address(id)) history.pushState(null, "", address(id));
  follow();
}

/** Opens what the address names: a chat, a new one, or at the start the one spoken in last. */
export function follow() {
  showSidebar(false);
  const named = new URLSearchParams(location.hash.slice(1)).get("s");
  const incognito = location.hash === "#incognito";
  if (named === null) byId("text").focus();
  if (named === state.current && incognito === state.incognito && (named || state.loaded)) return;
  Object.assign(state, { incognito, current: named, messages: [], earlier: false, missing: false, loaded: named === null });
  drawNow();
  if (named !== null && !findSession(named)) loadSessions();
  loadMessages();
  loadChatJobs();
}

function marks(session) {
  const busy = activity(turnsRunning(session.id));
  const jobs = sessionJobs(session.id).filter(isLive).length;
  const fresh = unread().filter((job) => job.session === session.id).length;
  return [
    session.parked > 0 && ["asks", "Asks you"],
    busy && ["busy", busy],
    jobs > 0 && ["working", plural(jobs, "job")],
    fresh > 0 && ["fresh", plural(fresh, "new report")],
    session.incognito && ["incognito", "Incognito"],
  ].filter(Boolean);
}

function entry(session) {
  const here = session.id === state.current;
  const shown = marks(session);
  const make = () =>
    h("li", { testid: "session", "data-session": session.id, "data-running": shown.some(([kind]) => kind === "busy") },
      h("a", { href: address(session.id), "aria-current": here && "page" },
        h("span", { class: "name", dir: "auto" }, sessionTitle(session)),
        h("span", { class: "marks" }, shown.map(([kind, label]) => h("span", { class: `mark ${kind}` }, label)))));
  return { key: session.id, sig: JSON.stringify([here, shown, session.title]), make };
}

function draw() {
  keyed(byId("sessions"), state.sessions.map(entry));
  byId("more-sessions").hidden = !state.moreSessions;
  const fresh = state.current === null;
  byId("new-chat").toggleAttribute("aria-current", fresh && !state.incognito);
  byId("new-incognito").toggleAttribute("aria-current", fresh && state.incognito);
  byId("incognito").hidden = !(fresh ? state.incognito : findSession(state.current)?.incognito);
  setText(byId("title"), state.missing ? "" : fresh ? "New chat" : sessionTitle(findSession(state.current)));
}

/** On a narrow screen the list lies over the chat; `focused` is the id of what gets the focus then. */
export function showSidebar(open, focused) {
  document.body.classList.toggle("sidebar-open", open);
  byId("open-sidebar").setAttribute("aria-expanded", open);
  if (focused) byId(focused).focus();
}

export function startSessions() {
  addEventListener("hashchange", follow);
  byId("open-sidebar").addEventListener("click", () => showSidebar(true, "new-chat"));
  byId("close-sidebar").addEventListener("click", () => showSidebar(false, "open-sidebar"));
  byId("more-sessions").addEventListener("click", () => loadMore("sessions"));
  return draw;
}
