// How a job stands in its chat: a line while it runs, a card when it is back, a note when there is little to say.

import { hasReport, jobButtons, openButton } from "./actions.js";
import { asked } from "./asking.js";
import { h, keyed, once, setCleanHtml } from "./dom.js";
import { counts, elapsed, outcome, plural, statusLabel, whyEnded } from "./format.js";
import { jobQuestion, questionLook } from "./questions.js";
import { isLive } from "./state.js";
import { openReport } from "./viewer.js";

const NOTE_CHARS = 120;
const KICKERS = { partial: "Partial report", failed: "Failed" };

const measured = new ResizeObserver((entries) => entries.forEach(({ target }) => measure(target)));

/** The fade stands only where text goes on below it. */
function measure(excerpt) {
  excerpt.classList.toggle("overflows", excerpt.scrollHeight > excerpt.clientHeight + 1);
}

export function badge(job) {
  return h("span", { class: `badge ${outcome(job)}`, testid: "job-status" }, statusLabel(job));
}

/** The time a job has run; main.js keeps it going while the job is live. */
export function clock(job) {
  const element = h("span", { class: "clock", testid: "job-elapsed" }, elapsed(job));
  if (isLive(job)) element.tick = () => (element.textContent = elapsed(job));
  return element;
}

const title = (job) => h("h2", { class: "title", dir: "auto" }, job.description);

/** What makes a job look different; what only counts up, like its usage, does not draw it anew. */
export const look = once((job) =>
  JSON.stringify([job.status, job.attempts, job.partial, job.description, job.error, job.canceled_by, job.dismissed, job.started_at,
    job.completed_at, job.report_chars, job.excerpt, job.excerpt_html, job.erased, job.follow_up, questionLook(job.question)]));

function isShort({ status, partial, excerpt, report_chars: chars }) {
  const text = (excerpt ?? "").trim();
  return status === "completed" && !partial && text !== "" && chars <= NOTE_CHARS && text.length <= NOTE_CHARS && !text.includes("\n");
}

function line(job) {
  const reason = whyEnded(job);
  return h("article", { class: "job-line", testid: "job-line", job: job.id, "data-status": job.status, "aria-label": `Background job: ${job.description}`, tabindex: -1 },
    title(job), h("span", { class: "facts" }, badge(job), clock(job)), jobButtons(job)[0],
    reason && h("p", { class: "reason", dir: "auto", testid: "reason" }, reason),
    asked(job), jobQuestion(job));
}

function note(job) {
  const text = job.dismissed ? `${statusLabel(job)}, dismissed` : job.excerpt.trim();
  return h("article", { class: "job-note", testid: "job-note", job: job.id, "data-status": job.status, "aria-label": `Background report: ${job.description}`, tabindex: -1 },
    title(job), h("span", { class: "text", dir: "auto" }, text), hasReport(job) && openButton(job, "quiet"));
}

function excerptOf(job) {
  if (job.erased) return h("p", { class: "hint", testid: "erased" }, "The report was erased.");
  if (job.incognito && hasReport(job)) return h("p", { class: "hint" }, "Incognito: it is shown where it is opened.");
  if (!hasReport(job)) return job.status === "completed" && h("p", { class: "hint" }, "No report was kept.");
  const element = h("div", { class: "excerpt prose", testid: "excerpt", dir: "auto" });
  if (job.excerpt_html === undefined) element.ariaBusy = true; // the news of its end brings Markdown alone: the rest is on its way
  else setCleanHtml(element, job.excerpt_html);
  for (const link of element.querySelectorAll("a")) link.tabIndex = -1; // may lie below the cut; the reader has them all
  measured.observe(element);
  queueMicrotask(() => measure(element)); // once it stands in the page; a tab in the background is not observed
  return element;
}

function card(job) {
  const kind = outcome(job);
  const named = KICKERS[kind] ?? (job.deterministic ? "Background deliverable" : "Background report");
  const [kicker, reason] = kind === "canceled" ? [whyEnded(job)] : [named, whyEnded(job)];
  const open = (event) => {
    if (hasReport(job) && !event.target.closest("a, button, form") && getSelection().isCollapsed) openReport(job.id);
  };
  const external = job.made_of === 1 && "made of external material";
  const facts = [job.subagent_type, elapsed(job), hasReport(job) && plural(job.report_chars, "character"), external].filter(Boolean).join(" · ");
  return h("article", {
    class: `report-card ${kind}${hasReport(job) ? " opens" : ""}`, testid: "report-card", job: job.id, "data-status": job.status,
    "aria-label": `${kicker}: ${job.description}`, tabindex: -1, on: { click: open } },
    h("header", {}, h("span", { class: "kicker" }, kicker), title(job)),
    reason && h("p", { class: "reason", dir: "auto", testid: "reason" }, reason),
    asked(job), excerptOf(job),
    h("footer", {}, jobButtons(job, "primary"), h("span", { class: "facts" }, facts)));
}

function whole(job) {
  if (isLive(job)) return line(job);
  return job.dismissed || isShort(job) ? note(job) : card(job);
}

const entry = (job, make) => ({ key: job.id, sig: make.name + look(job), make: () => make(job) });

function fillBatch(element, jobs) {
  const live = jobs.filter(isLive).length;
  const [heading, count] = element.firstChild.children;
  heading.textContent = plural(jobs.length, "background job");
  count.textContent = counts(jobs);
  element.dataset.live = live;
  element.setAttribute("aria-label", `${heading.textContent}: ${count.textContent}`);
  // While somebody is out all are lines, so that the batch stays compact; then each shows what it brought.
  keyed(element.lastChild, jobs.map((job) => entry(job, live ? line : whole)));
}

/** One entry of the timeline for what one turn sent out: a lone job as itself, more as one group. */
export function batchEntry(jobs) {
  const [first] = jobs;
  if (jobs.length === 1) return { ...entry(first, whole), key: `job:${first.id}` };
  const make = () => h("section", { class: "batch", testid: "job-batch", "data-batch": first.batch_id },
    h("header", {}, h("h2", {}), h("span", { class: "counts", testid: "batch-counts" })), h("div", { class: "members" }));
  return { key: `batch:${first.batch_id}`, make, update: (element) => fillBatch(element, jobs) };
}
