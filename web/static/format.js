// Words and numbers as people read them. Knows the states of a job, and nothing of where they come from.

import { serverNow } from "./api.js";

export const ENDED = new Set(["completed", "failed", "canceled"]);

const STATUS = {
  queued: "Queued",
  running: "Running",
  input_required: "Waiting for input",
  completed: "Done",
  failed: "Failed",
  canceled: "Canceled",
};

const REASONS = {
  ATTEMPTS_EXHAUSTED: "Gave up after several tries.",
  TIMED_OUT: "Ran out of time.",
  STALLED: "Stopped making progress.",
  MODEL_FAILED: "The model failed.",
  OUTPUT_LIMIT: "Ran into the model's output limit.",
  OUTPUT_REJECTED: "The answer was refused by the output check.",
  NO_REPORT: "Ended without a report.",
  BUDGET_EXCEEDED: "Used up its budget of tokens.",
  INTERRUPTED: "Interrupted.",
  RESULT_NOT_KEPT: "The result may not be kept.",
};

const CANCELED_BY = { user: "Canceled by you", agent: "Canceled by the agent", plugin: "Canceled by a plugin" };

export const plural = (count, noun) => `${count.toLocaleString("en")} ${noun}${count === 1 ? "" : "s"}`;

/** A code of the server's in words; other text stays as it is. */
export const inWords = (reason) => REASONS[reason] ?? reason ?? "";

/** What goes on in a chat: its running answers and briefings, counted where there are more. Which it is may not be known. */
export function activity(turns) {
  const kinds = Map.groupBy(turns, ({ briefing }) => (briefing === undefined ? "Working" : briefing ? "Briefing" : "Answering"));
  return [...kinds].map(([label, { length }]) => (length > 1 ? `${label} (${length})` : label)).join(", ");
}

/** What a job is, in one word: a failed job that left a report is its own kind. */
export const outcome = (job) => (job.status === "failed" && job.partial ? "partial" : job.status);

export const statusLabel = (job) => (outcome(job) === "partial" ? "Partial" : (STATUS[job.status] ?? job.status));

/** Why a job did not come to its own end; empty for one that did. */
export function whyEnded(job) {
  if (job.status === "canceled") return CANCELED_BY[job.canceled_by] ?? "Canceled";
  if (job.status !== "failed") return "";
  return job.error?.message || inWords(job.error?.reason) || "No reason was given.";
}

/** How long a job has run, or ran; a queued one: how long it has waited. */
export function elapsed(job) {
  const start = Date.parse(job.started_at ?? job.created_at);
  const end = job.completed_at ? Date.parse(job.completed_at) : serverNow();
  const seconds = Math.max(0, Math.round((end - start) / 1000));
  if (!Number.isFinite(seconds)) return "";
  if (seconds < 60) return `${seconds} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}

/** A size as people read it. */
export function bytes(count) {
  const steps = ["bytes", "kB", "MB", "GB"];
  const step = count < 1000 ? 0 : Math.min(3, Math.floor(Math.log10(count) / 3));
  return `${(count / 1000 ** step).toLocaleString("en", { maximumFractionDigits: 1 })} ${steps[step]}`;
}

export function when(time) {
  const date = new Date(time);
  return Number.isNaN(date.getTime()) ? "" : date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });
}

/** The time of day, with its date in front where that is not today. */
export function timeOfDay(time) {
  const date = new Date(time);
  if (date.toDateString() !== new Date(serverNow()).toDateString()) return when(time);
  return date.toLocaleTimeString(undefined, { timeStyle: "short" });
}

/** `completed 6, failed 1` in the order of a job's life, as `6 done · 1 failed`. */
export function counts(jobs) {
  const tally = new Map();
  for (const job of jobs) tally.set(statusLabel(job), (tally.get(statusLabel(job)) ?? 0) + 1);
  const order = ["Running", "Waiting for input", "Queued", "Done", "Partial", "Failed", "Canceled"];
  return order.filter((label) => tally.has(label)).map((label) => `${tally.get(label)} ${label.toLowerCase()}`).join(" · ");
}
