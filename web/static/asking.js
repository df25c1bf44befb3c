// A further question to the worker of a job that has ended: a button, and the field that it opens.

import { h } from "./dom.js";
import { isLive } from "./state.js";
import { press } from "./toast.js";

/** Whether its worker may still know what it did; the server has the last word. */
export const canAsk = (job) => !isLive(job) && job.status !== "canceled" && !job.erased && !job.deterministic;

/** The button; `ask(text)` sends what was typed, and the job is at work again. */
export function askButton(job, kind, ask) {
  const open = (event) => toggle(event.currentTarget.parentElement, job, ask);
  return h("button", { class: kind, testid: "ask-job", job: job.id, "aria-label": `Ask further: ${job.description}`, on: { click: open } }, "Ask");
}

function toggle(row, job, ask) {
  const there = row.nextElementSibling;
  if (there?.classList.contains("asking")) return there.remove();
  const form = field(job, ask);
  row.after(form);
  form.querySelector("textarea").focus();
}

function field(job, ask) {
  const box = h("textarea", { rows: 2, testid: "ask-text", dir: "auto", "aria-label": `A further question on ${job.description}`, placeholder: "Its worker goes on from what it knows" });
  const send = h("button", { class: "primary", testid: "send-ask" }, "Ask");
  box.addEventListener("keydown", (event) => {
    if (event.key === "Escape") form.remove();
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    form.requestSubmit();
  });
  const submit = (event) => {
    event.preventDefault();
    if (box.value.trim()) press(send, () => ask(box.value));
  };
  const form = h("form", { class: "asking", testid: "ask-form", on: { submit } }, box, send);
  return form;
}

/** What its present attempt was asked, if that goes on from an earlier one. */
export const asked = (job) =>
  job.follow_up && h("p", { class: "asked", dir: "auto", testid: "follow-up" }, h("span", { class: "hint" }, "Asked: "), job.follow_up);
