// Puts the console together: views in the order they draw, then the first read, then the events.

import { explain, UNREACHABLE } from "./api.js";
import { startAdding } from "./adding.js";
import { startChat } from "./chat.js";
import { startComposer } from "./composer.js";
import { byId, setText } from "./dom.js";
import { listen } from "./events.js";
import { closePanel, startJobs, tellEnded } from "./jobs.js";
import { enter } from "./login.js";
import { follow, goTo, showSidebar, startSessions } from "./sessions.js";
import { addView, changed, state } from "./state.js";
import { loadSessions, reconcile } from "./sync.js";
import { openUnread } from "./unread.js";
import { startViewer } from "./viewer.js";

function drawProblem() {
  const errors = [...state.problems.values()];
  const lost = state.lost && !errors.some(({ status }) => status === 401 || status === 403); // refused is not lost
  const told = new Set(errors.map(explain));
  if (state.lost) told.delete(UNREACHABLE);
  const text = [lost && "Connection lost. Trying again…", ...told].filter(Boolean).join(" ");
  setText(byId("problem"), text);
  byId("problem").hidden = !text;
}

function escape(event) {
  if (event.key !== "Escape" || byId("viewer").open) return;
  if (document.body.classList.contains("sidebar-open")) showSidebar(false, "open-sidebar");
  else if (state.panel) closePanel();
}

await enter();
startAdding();
addView(startSessions());
addView(startChat());
addView(startComposer());
startJobs();
addView(drawProblem);
startViewer();
document.addEventListener("keydown", escape);
document.addEventListener("visibilitychange", () => document.hidden || reconcile());
setInterval(() => document.querySelectorAll(".clock").forEach((clock) => clock.tick?.()), 1000);
changed();

// The list comes first: without a chat in the address the one spoken in last is opened.
if (!location.hash) {
  await loadSessions();
  if (state.sessions.length > 0 && !location.hash) goTo(state.sessions[0].id, { remember: false });
}
follow();
openUnread();
listen(tellEnded);
