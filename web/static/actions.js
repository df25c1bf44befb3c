// What a person can do with a job: one set of buttons for cards, panel and groups.

import * as api from "./api.js";
import { askButton, canAsk } from "./asking.js";
import { h } from "./dom.js";
import { isLive, putJob, state } from "./state.js";
import { loadChatJobs, loadJobs } from "./sync.js";
import { copyText, press } from "./toast.js";
import { openReport } from "./viewer.js";

const tabs = new BroadcastChannel("outrider");
tabs.onmessage = () => reload(); // dismissing is no event of the server's; our other tabs hear of it here

function reload() {
  loadChatJobs();
  loadJobs();
}

/** Cancel, dismiss or retry; whatever the answer, the store is what the server says afterwards. */
export async function act(jobs, verb) {
  try {
    for (const { id } of jobs) putJob(await api.actOnJob(id, verb));
  } finally {
    reload();
    tabs.postMessage(verb);
  }
}

async function ask(job, text) {
  putJob(await api.askJob(job.id, text));
  reload();
  tabs.postMessage("ask");
}

function button(label, testid, job, act, kind = "quiet") {
  const click = (event) => press(event.currentTarget, act);
  return h("button", { class: kind, testid, job: job.id, "aria-label": `${label}: ${job.description}`, on: { click } }, label);
}

export const hasReport = (job) => !isLive(job) && job.report_chars > 0;

export const openButton = (job, kind) => button("Open report", "open-report", job, () => openReport(job.id), kind);

/** The buttons that fit a job's state, the one that opens its report first. */
export function jobButtons(job, kind = "quiet") {
  if (isLive(job)) return [button("Stop", "stop-job", job, () => act([job], "cancel"))];
  return [
    hasReport(job) && openButton(job, kind),
    hasReport(job) && button("Copy", "copy-report", job, () => copyText(api.reportText(job.id))),
    canAsk(job) && askButton(job, "quiet", (text) => ask(job, text)),
    job.status !== "completed" && button("Retry", "retry-job", job, () => act([job], "retry")),
    !job.dismissed && button("Dismiss", "dismiss-job", job, () => act([job], "dismiss")),
  ].filter(Boolean);
}

/** What ended in the open chat, or in all where none is open, as far as the store knows it and it is not dismissed. */
export const finished = () =>
  [...state.jobs.values()].filter((job) => !isLive(job) && !job.dismissed && [null, job.session].includes(state.current));
