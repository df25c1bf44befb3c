// The pill and the panel of background jobs, of all chats. What is on screen here counts as seen.

import { act, finished, jobButtons } from "./actions.js";
import { badge, clock, look } from "./cards.js";
import { showJob } from "./chat.js";
import { byId, h, keyed, setText } from "./dom.js";
import { plural, timeOfDay, when, whyEnded } from "./format.js";
import { jobQuestion } from "./questions.js";
import { goTo } from "./sessions.js";
import { addView, byAge, changed, findSession, isLive, sessionTitle, state } from "./state.js";
import { loadMore } from "./sync.js";
import { press, toast } from "./toast.js";
import { markSeen, unread } from "./unread.js";

const PATIENCE_MS = 3000;
const SURE_MS = 6000;

let sure = null; // the timer of a first press on Clear, which asks for a second one
let wanted = null; // a job whose card is to be shown once its chat is there

function goToJob(job) {
  wanted = job.id;
  setTimeout(() => (wanted = null), PATIENCE_MS); // it stands further up than what is loaded
  if (matchMedia("(max-width: 900px)").matches) showPanel(false);
  goTo(job.session);
  changed();
}

function row(job, session) {
  const reason = whyEnded(job);
  const go = h("button", { class: "quiet link", testid: "go-to-chat", "aria-label": `Go to chat: ${job.description}`, on: { click: () => goToJob(job) } }, session);
  return h("li", { testid: "job-row", job: job.id, "data-status": job.status, tabindex: -1 },
    h("span", { class: "title", dir: "auto" }, job.description),
    h("span", { class: "facts" }, badge(job), clock(job), moment(job), h("span", {}, job.subagent_type), go),
    reason && h("p", { class: "reason", dir: "auto", testid: "reason" }, reason),
    jobQuestion(job),
    h("div", { class: "buttons" }, jobButtons(job)));
}

/** When it ended, or else when it was sent out. */
function moment({ completed_at: ended, created_at: sent }) {
  const time = ended ?? sent;
  return h("time", { testid: "job-time", datetime: time, title: when(time) }, timeOfDay(time));
}

function entry(job) {
  const session = job.session === state.current ? "This chat" : sessionTitle(findSession(job.session));
  return { key: job.id, sig: session + look(job), make: () => row(job, session) };
}

const liveFirst = (jobs) => byAge(jobs).reverse().sort((a, b) => isLive(b) - isLive(a));

function drawPill(jobs) {
  const asking = jobs.filter((job) => job.status === "input_required").length;
  const running = jobs.filter((job) => job.status === "running").length;
  const queued = jobs.filter((job) => job.status === "queued").length;
  const fresh = unread().length;
  const parts = [asking && `${asking} asking`, running && `${running} running`, queued && `${queued} queued`].filter(Boolean);
  const pill = byId("pill");
  setText(pill, parts.join(" · ") || "Jobs");
  pill.dataset.unread = fresh || "";
  pill.classList.toggle("running", asking + running + queued > 0);
  pill.setAttribute("aria-expanded", state.panel);
  pill.setAttribute("aria-label", ["Background jobs", ...parts, fresh && `${fresh} unread`].filter(Boolean).join(", "));
  document.title = fresh ? `(${fresh}) Outrider` : "Outrider";
}

function draw() {
  if (!document.hidden) markSeen(state.panel ? "*" : state.current);
  const jobs = [...state.jobs.values()].filter((job) => !job.dismissed);
  drawPill(jobs);
  byId("panel").hidden = !state.panel;
  document.body.classList.toggle("panel-open", state.panel);
  keyed(byId("jobs"), state.panel ? liveFirst(jobs).map(entry) : []);
  byId("no-jobs").hidden = jobs.length > 0;
  drawClear();
  byId("more-jobs").hidden = !state.moreJobs;
}

/** What is dismissed does not come back, and other chats are not on screen: it says how many and where, and asks twice. */
function drawClear() {
  const button = byId("clear");
  const { length } = finished();
  button.hidden = length === 0;
  setText(button, sure ? `Clear ${plural(length, "job")}?` : state.current === null ? "Clear finished" : "Clear finished here");
}

function clear(event) {
  const again = sure !== null;
  clearTimeout(sure);
  sure = again ? null : setTimeout(() => ((sure = null), changed()), SURE_MS);
  if (again) press(event.currentTarget, () => act(finished(), "dismiss"));
  else changed();
}

/** After all views: the card that was asked for may only now be there. */
function drawWanted() {
  if (wanted && showJob(wanted)) wanted = null;
}

export function showPanel(open) {
  if (open === state.panel) return;
  state.panel = open;
  changed();
}

/** A job of a chat that is not open has ended. */
export function tellEnded(job) {
  if (job.session === state.current || state.panel) return;
  const how = job.status === "completed" ? "is back" : job.status === "canceled" ? "was canceled" : "failed";
  toast(`“${job.description}” ${how}.`, ["Show", () => showPanel(true)]);
}

export function startJobs() {
  byId("pill").addEventListener("click", () => showPanel(!state.panel));
  byId("close-panel").addEventListener("click", closePanel);
  byId("clear").addEventListener("click", clear);
  byId("more-jobs").addEventListener("click", () => loadMore("jobs"));
  addView(draw);
  addView(drawWanted);
}

export function closePanel() {
  showPanel(false);
  byId("pill").focus();
}
