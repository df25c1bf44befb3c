// The open conversation: the log, what is being said, and where the background work of each turn stands in it.

import * as api from "./api.js";
import { artifactViews } from "./artifacts.js";
import { batchEntry } from "./cards.js";
import { deliver, discard } from "./composer.js";
import { byId, h, keyed, once, prose, setText } from "./dom.js";
import { activity, inWords, plural } from "./format.js";
import { questionCard, questionLook } from "./questions.js";
import { byAge, openTurns, plainState, sessionJobs, state, WAITING } from "./state.js";
import { loadEarlier, loadMessages } from "./sync.js";
import { press } from "./toast.js";

const scroll = byId("scroll");
const NEAR_END = 80; // pixels: who is this close to the end wants to stay there

let drawn = null; // the session on screen
let spoken = null; // what was sent last
let following = true;

const quiet = (kind, text) => h("p", { class: `quiet-line ${kind}`, testid: kind, dir: "auto" }, text);

const MESSAGES = {
  user: (message) =>
    h("article", { class: "message user", testid: "message-user", "aria-label": "You" },
      h("div", { class: "bubble", dir: "auto" }, message.text),
      WAITING.has(plainState(message.state)) && waitingLine(message),
      message.folded_into && h("p", { class: "hint", testid: "taken-up" }, "Taken up on the way")),
  agent: (message) => (message.question ? questionMessage(message) : agentMessage(message)),
  notification: (message) =>
    quiet("notification", `${plural(message.job_ids.length, "job")} reported back`),
  notice: (message) => quiet("notice", message.text),
};

/** What a message waits for, and the way to take it back until then. */
function waitingLine({ task_id: task, steers }) {
  const session = state.current;
  const withdraw = () => api.stopTurn(session, task).finally(loadMessages);
  return h("p", { class: "hint", testid: "waits" }, steers ? "Will be taken up at the next step" : "Waits for the answer before it",
    h("button", { class: "quiet", testid: "withdraw", on: { click: (event) => press(event.currentTarget, withdraw) } }, "Withdraw"));
}

function agentMessage(message) {
  return h("article", { class: "message agent", testid: "message-agent", "aria-label": "Outrider" },
    hasMore(message) ? artifactViews(message.artifacts) : prose("div", { class: "prose", dir: "auto" }, message.html, message.text));
}

/** Whether an answer is more than a text. */
const hasMore = (message) => message.artifacts?.length > 0;

/** What the turn asks, with what answers it, as long as it is open. */
function questionMessage({ task_id: task, question }) {
  const session = state.current;
  const cancel = () => api.stopTurn(session, task).finally(loadMessages);
  return h("article", { class: "message agent", testid: "message-question", "aria-label": "Outrider asks" }, questionCard({ session, task, question }, { cancel }));
}

const messageEntry = once((message) => ({
  key: `message:${message.id}`,
  task: message.task_id,
  at: message.created_at,
  sig: JSON.stringify([message.text, message.html, message.state, message.steers, message.folded_into, message.artifacts, questionLook(message.question)]),
  make: () => MESSAGES[message.kind](message),
}));

/** How a turn ended that did not come to its end, said once, below the last that stands of it. */
function endings() {
  const last = new Map();
  for (const message of state.messages) {
    if (message.task_id && ["failed", "rejected", "canceled"].includes(plainState(message.state))) last.set(message.task_id, message);
  }
  return [...last.values()].map((message) => {
    const briefing = state.messages.some(({ task_id: task, kind }) => task === message.task_id && kind === "nudge");
    const what = briefing ? "The briefing" : "The answer";
    const canceled = plainState(message.state) === "canceled";
    const unread = state.messages.some(({ task_id: task, withdrawn }) => task === message.task_id && withdrawn);
    const stopped = unread ? "Withdrawn before it was read." : `${what} was stopped.`;
    const text = canceled ? stopped : `${what} failed. ${message.detail || inWords(message.reason)}`;
    const make = () => quiet(canceled ? "turn-canceled" : "turn-failed", text);
    return { key: `end:${message.task_id}`, task: message.task_id, at: message.created_at, sig: text, make };
  });
}

function previewEntry(turn) {
  const make = () => h("article", { class: "message agent preview", testid: "preview", "data-task": turn.task, "aria-label": "Outrider, not finished", "aria-live": "off" }, h("div", { class: "plain prose", dir: "auto" }));
  return { key: `preview:${turn.task}`, task: turn.task, make, update: (element) => setText(element.firstChild, (turn.cut ? "… " : "") + turn.text) };
}

function sentEntry(sent) {
  const make = () =>
    h("article", { class: `message user ${sent.error ? "unsent" : "sending"}`, testid: "message-sending", "aria-label": "You" },
      h("div", { class: "bubble", dir: "auto" }, sent.text),
      sent.error
        ? h("p", { role: "alert" }, `Not sent. ${sent.error} `,
            h("button", { class: "quiet", on: { click: () => deliver(sent) } }, "Send again"),
            h("button", { class: "quiet", on: { click: () => discard(sent) } }, "Discard"))
        : null);
  return { key: `sent:${sent.id}`, task: sent.task, sig: sent.error ?? "", make };
}

/** After the last entry of a task, or of the task that the entry before a moment belongs to. */
function insert(entries, entry, task, at) {
  const before = entries.findLastIndex((other) => other.at && other.at <= at);
  const owner = task ?? entries[before]?.task;
  const last = owner ? entries.findLastIndex((other) => other.task === owner) : -1;
  entries.splice(Math.max(before, last) + 1, 0, entry);
}

/** Nudges speak to the model alone; a turn that ended early may have left no text. */
const isShown = (message) => MESSAGES[message.kind] && (message.kind !== "agent" || message.text || hasMore(message));

function timeline() {
  const entries = state.messages.filter(isShown).map(messageEntry);
  for (const ending of endings()) insert(entries, ending, ending.task, "");
  entries.push(...state.outbox.filter((sent) => sent.session === state.current).map(sentEntry));
  entries.push(...openTurns().filter((turn) => turn.text).map(previewEntry));
  const begin = state.earlier ? (state.messages[0]?.created_at ?? "") : "";
  for (const jobs of batches()) {
    const sentOut = jobs[0].created_at;
    if (sentOut >= begin) insert(entries, batchEntry(jobs), null, sentOut);
  }
  return entries;
}

/** The open session's jobs by batch, latest batch first: each is set in above those that came after it. */
function batches() {
  const found = Map.groupBy(byAge(sessionJobs(state.current)), (job) => job.batch_id ?? job.id);
  return [...found.values()].reverse();
}

function draw() {
  const session = state.current;
  const sent = state.outbox.at(-1);
  if (session !== drawn || (sent && sent !== spoken)) following = true; // who has just spoken wants to see the answer
  [drawn, spoken] = [session, sent ?? spoken];
  const entries = session === null ? state.outbox.filter((sent) => sent.session === null).map(sentEntry) : timeline();
  keyed(byId("timeline"), entries);
  byId("timeline").ariaBusy = entries.some(({ key }) => key.startsWith("preview:"));
  const begun = session !== null || entries.length > 0;
  byId("welcome").hidden = begun || state.incognito;
  byId("welcome-incognito").hidden = begun || !state.incognito;
  byId("earlier").hidden = !state.earlier;
  setText(byId("activity"), activity(openTurns().filter((turn) => !turn.finished)));
  if (following) scroll.scrollTop = scroll.scrollHeight;
  showLatest();
}

const nearEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < NEAR_END;

function showLatest() {
  byId("latest").hidden = following || nearEnd();
  scroll.style.overflowAnchor = following ? "none" : "auto"; // the browser's own hold would keep us from the end
}

/** Goes to a job's card; false where it is not on screen. */
export function showJob(id) {
  const card = byId("timeline").querySelector(`article[data-job="${CSS.escape(id)}"]`);
  if (!card) return false;
  following = false;
  card.scrollIntoView({ block: "center" });
  card.focus({ preventScroll: true });
  return true;
}

async function earlier() {
  const height = scroll.scrollHeight - scroll.scrollTop;
  following = false;
  await loadEarlier();
  draw();
  scroll.scrollTop = scroll.scrollHeight - height;
}

export function startChat() {
  scroll.addEventListener("scroll", () => {
    following = nearEnd();
    showLatest();
  }, { passive: true });
  new ResizeObserver(() => following && (scroll.scrollTop = scroll.scrollHeight)).observe(scroll);
  byId("earlier").addEventListener("click", (event) => press(event.currentTarget, earlier));
  byId("latest").addEventListener("click", () => {
    following = true;
    draw();
  });
  return draw;
}
