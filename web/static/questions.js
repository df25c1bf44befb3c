// What a parked task asks, and what answers it: two buttons for an approval, fields for a form, a line of text for the rest.

import * as api from "./api.js";
import { h, setText } from "./dom.js";
import { when } from "./format.js";
import { loadChatJobs, loadJobs, loadMessages, loadSessions } from "./sync.js";
import { press } from "./toast.js";

const KICKERS = {
  question: "Waits for your answer",
  form: "Waits for your answer",
  approval: "Waits for your approval",
  auth: "Waits until you have signed in",
};
const INPUTS = { string: "text", number: "number", integer: "number", boolean: "checkbox" };

/** What makes a question look different: while this stays, what is typed into its fields stays too. */
export const questionLook = (question) => question && [question.question, question.text.length, question.detail.length];

const newId = () => [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, "0")).join("");

/** Sends an answer: the same one again counts once, and it answers this question and no later one. */
function answering(asked) {
  let sent = null;
  return async (answer) => {
    const what = JSON.stringify(answer);
    if (sent?.what !== what) sent = { what, id: newId() };
    try {
      await api.answer(asked.session, { ...answer, task_id: asked.task, question: asked.question.question, message_id: sent.id });
    } finally {
      await refresh();
    }
  };
}

const refresh = () => Promise.all([loadMessages(), loadChatJobs(), loadJobs(), loadSessions()]);

function button(label, kind, testid, act) {
  return h("button", { class: kind, type: "button", testid, on: { click: (event) => press(event.currentTarget, act) } }, label);
}

function approval(send) {
  return [
    button("Approve", "primary", "approve", () => send({ text: "approve" })),
    button("Deny", "", "deny", () => send({ text: "deny" })),
  ];
}

/** A form whose button sends what `read` gives, if it gives anything; `refused` may take over to tell what the server said. */
function sending(fields, read, send, refused = () => false) {
  const submit = h("button", { class: "primary", testid: "send-answer" }, "Answer");
  const deliver = async (answer) => {
    try {
      await send(answer);
    } catch (error) {
      if (!refused(error)) throw error;
    }
  };
  const act = (event) => {
    event.preventDefault();
    const answer = read();
    if (answer) press(submit, () => deliver(answer));
  };
  return h("form", { class: "fields", novalidate: true, on: { submit: act } }, fields, submit);
}

/** An input under its label, with room below for what is wrong with it, which `tell` says until it is changed. */
function labelled(label, input) {
  const problem = h("span", { class: "wrong", testid: "field-problem", id: `problem-${newId()}`, role: "alert", dir: "auto" });
  const tell = (words) => {
    setText(problem, words);
    input.ariaInvalid = words ? "true" : null;
    return Boolean(words);
  };
  input.setAttribute("aria-describedby", problem.id);
  input.addEventListener("input", () => tell(""));
  return { element: h("div", { class: "field" }, h("label", {}, label, input), problem), input, tell };
}

const WITHIN = "data"; // where the server says that an answer does not fit its form

/** Where and why the server says that a form's data does not fit, or nothing. */
function misfit(error) {
  const { field = "", why } = error.details ?? {};
  return why && field.startsWith(WITHIN) ? { place: field.slice(WITHIN.length).replace(/^\./, ""), why } : null;
}

function text(send) {
  const box = h("textarea", { rows: 2, "aria-label": "Your answer", testid: "answer-text", dir: "auto" });
  box.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    box.form.requestSubmit();
  });
  return sending(box, () => (box.value.trim() ? { text: box.value } : null), send);
}

/** Its properties, if they are so plain that each can have a field of its own. */
function plain(schema) {
  const properties = Object.entries(schema?.properties ?? {});
  const simple = ([, of]) => (of.enum ? of.enum.every((value) => typeof value === "string") : of.type in INPUTS);
  return schema?.type === "object" && properties.length > 0 && properties.every(simple) ? properties : null;
}

function field(name, of, required) {
  const shared = { name, testid: "field", "data-name": name, required, "aria-required": required };
  const input = of.enum
    ? h("select", shared, required ? null : h("option", { value: "" }, ""), of.enum.map((value) => h("option", { value }, value)))
    : h("input", { ...shared, type: INPUTS[of.type], step: of.type === "number" ? "any" : null, dir: "auto" });
  const title = h("span", { dir: "auto" }, of.title ?? name, required && of.type !== "boolean" && h("span", { class: "hint" }, " (required)"));
  const { element, tell } = labelled([title, of.description && h("span", { class: "hint", dir: "auto" }, of.description)], input);
  return {
    name, element, input,
    value: () => valueOf(input, of),
    /** Says what is wrong, by the name that a person reads; false where nothing is. */
    tell: (why) => tell(why && `${of.title ?? name} ${why}.`),
    wrong: () => wrongIn(input, of, required),
  };
}

/** What can be said of an input without asking the server. */
function wrongIn(input, of, required) {
  if (input.validity.badInput) return "must be a number";
  if (of.type === "boolean") return "";
  if (input.value === "") return required ? "must be filled in" : "";
  return of.type === "integer" && !Number.isInteger(Number(input.value)) ? "must be a whole number" : "";
}

function valueOf(input, of) {
  if (of.type === "boolean") return input.checked;
  if (input.value === "") return undefined;
  return of.type === "number" || of.type === "integer" ? Number(input.value) : input.value;
}

function form(schema, send) {
  const properties = plain(schema);
  if (!properties) return json(schema, send);
  const required = new Set(schema.required ?? []);
  const fields = properties.map(([name, of]) => field(name, of, required.has(name)));
  const read = () => {
    const wrong = fields.filter((each) => each.tell(each.wrong()));
    wrong[0]?.input.focus();
    if (wrong.length > 0) return null;
    const values = fields.map(({ name, value }) => [name, value()]);
    return { data: Object.fromEntries(values.filter(([, value]) => value !== undefined)) };
  };
  const refused = (error) => {
    const found = misfit(error);
    const at = found && fields.find(({ name }) => name === found.place);
    at?.tell(found.why);
    at?.input.focus();
    return Boolean(at);
  };
  return sending(fields.map(({ element }) => element), read, send, refused);
}

function json(schema, send) {
  const box = h("textarea", { rows: 4, testid: "answer-json", spellcheck: "false" });
  const { element, tell } = labelled(h("span", {}, "Your answer as JSON"), box);
  const read = () => {
    try {
      return { data: JSON.parse(box.value) };
    } catch {
      tell("That is no JSON yet.");
    }
  };
  const refused = (error) => {
    const found = misfit(error);
    return Boolean(found) && tell(found.place ? `${found.place} ${found.why}.` : `It ${found.why}.`);
  };
  const shape = h("details", {}, h("summary", {}, "What is asked for"), h("pre", {}, JSON.stringify(schema, null, 2)));
  return sending([element, shape], read, send, refused);
}

function controls({ question }, send) {
  if (question.kind === "approval") return h("div", { class: "choices" }, approval(send));
  return question.kind === "form" ? form(question.schema, send) : text(send);
}

/** The card of a question: `{session, task, question}`; a job's own has its name; `cancel` gives the way out. */
export function questionCard(asked, { name, cancel } = {}) {
  const { question } = asked;
  const kicker = KICKERS[question.kind] ?? KICKERS.question;
  return h("section", { class: "question", testid: "question", "data-task": asked.task, "data-kind": question.kind, "aria-label": name ? `${kicker}: ${name}` : kicker },
    h("p", { class: "kicker" }, kicker),
    h("p", { class: "text", dir: "auto", testid: "question-text" }, question.text),
    question.detail && h("pre", { class: "detail", testid: "question-detail", tabindex: 0, dir: "auto" }, question.detail),
    controls(asked, answering(asked)),
    h("footer", { class: "facts" },
      question.deadline && h("span", { testid: "deadline" }, `Until ${when(question.deadline)}, then it fails.`),
      cancel && button("Cancel this turn", "quiet", "cancel-parked", cancel)));
}

/** The question of a parked job, or nothing. */
export const jobQuestion = (job) =>
  job.status === "input_required" && job.question && questionCard({ session: job.session, task: job.task_id, question: job.question }, { name: job.description });
