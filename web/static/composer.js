// What a person writes: drafts, sending and stopping. A message keeps its id however often it is sent, so it counts once.

import * as api from "./api.js";
import { byId } from "./dom.js";
import { listenAside } from "./events.js";
import { goTo } from "./sessions.js";
import { changed, openTurns, state } from "./state.js";
import { loadMessages, loadSessions } from "./sync.js";
import { press } from "./toast.js";

const box = byId("text");
const drafts = new Map(); // session -> what stands in the box

let shown = null; // the session whose draft is in the box

// `crypto.randomUUID` is only there on secure addresses; a server in the next room is none.
export const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** While a turn runs a message comes next, or `steer`s: that turn takes it up, if it takes another step. */
function submit({ steer = false } = {}) {
  const text = box.value.trim();
  if (!text) return;
  setBox("");
  const known = new Set(state.messages.map((message) => message.id));
  const { current: session, incognito } = state;
  const sent = { session, incognito, id: newId(), text, steer, task: null, error: null, known };
  state.outbox.push(sent);
  deliver(sent);
}

/** Sends, or sends again. */
export async function deliver(sent) {
  sent.error = null;
  changed();
  try {
    if (sent.session === null) await begin(sent);
    sent.task = (await api.send(sent.session, sent)).task_id;
  } catch (error) {
    sent.error = api.explain(error);
  }
  changed();
  loadSessions();
  if (sent.session === state.current) loadMessages();
}

async function begin(sent) {
  const here = state.current === null;
  sent.session = (await api.newSession(sent.incognito)).id;
  if (!here || state.current !== null) return;
  drafts.set(sent.session, box.value); // what was typed meanwhile belongs to this chat, and no longer to a new one
  setBox("");
  goTo(sent.session);
  if (sent.incognito) await listenAside(sent.session);
}

export function discard(sent) {
  state.outbox = state.outbox.filter((other) => other !== sent);
  changed();
}

function setBox(text) {
  box.value = text;
  fit();
}

function fit() {
  box.style.height = "auto";
  box.style.height = `${box.scrollHeight + 2}px`;
}

/** The turn that Stop stops: the oldest that runs. */
const runningTurn = () => openTurns().find((turn) => !turn.finished);

async function stop() {
  const { task } = runningTurn();
  state.stopping.add(task);
  changed();
  try {
    await api.stopTurn(state.current, task);
  } catch (error) {
    state.stopping.delete(task);
    throw error;
  } finally {
    loadMessages();
  }
}

function draw() {
  if (shown !== state.current) {
    drafts.set(shown, box.value);
    shown = state.current;
    setBox(drafts.get(shown) ?? "");
  }
  byId("composer").hidden = state.missing;
  const turn = runningTurn();
  byId("stop").hidden = !turn;
  byId("stop").textContent = turn && state.stopping.has(turn.task) ? "Stopping…" : "Stop";
  byId("steer").hidden = !turn;
  byId("send").textContent = turn ? "Send next" : "Send";
  byId("composer").classList.toggle("busy", Boolean(turn));
}

export function startComposer() {
  byId("composer").addEventListener("submit", (event) => {
    event.preventDefault();
    submit();
  });
  box.addEventListener("input", fit);
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit({ steer: (event.ctrlKey || event.metaKey) && !byId("steer").hidden });
  });
  byId("steer").addEventListener("click", () => {
    submit({ steer: true });
    box.focus();
  });
  byId("stop").addEventListener("click", (event) => press(event.currentTarget, stop));
  byId("example").addEventListener("click", (event) => {
    setBox(event.currentTarget.textContent);
    box.focus();
  });
  return draw;
}
