// The one reader for whole reports. Shows what was asked for last, and gives the focus back to where it came from.

import * as api from "./api.js";
import { byId, h, setCleanHtml, setText } from "./dom.js";
import { plural, statusLabel, when } from "./format.js";
import { state } from "./state.js";
import { copyText, press } from "./toast.js";

const dialog = byId("viewer");
const body = byId("viewer-body");

let open = null; // {id, opener, request}: what is in the reader; an answer for anything else is late, and dropped

export function openReport(id) {
  open?.request.abort();
  open = { id, opener: open?.opener ?? document.activeElement, request: new AbortController() };
  const job = state.jobs.get(id);
  setText(byId("viewer-title"), job?.description || "Report");
  setText(byId("viewer-subtitle"), job ? subtitle(job) : id);
  byId("viewer-download").href = api.downloadAddress(id);
  if (!dialog.open) dialog.showModal();
  return load(open);
}

const subtitle = (job) =>
  [job.subagent_type, statusLabel(job), when(job.completed_at), plural(job.report_chars, "character")].filter(Boolean).join(" · ");

async function load(asked) {
  show("loading", h("p", { class: "hint", role: "status" }, "Loading the report…"));
  try {
    const html = await api.reportHtml(asked.id, asked.request.signal);
    if (asked === open) setCleanHtml(show("ready"), html);
  } catch (error) {
    if (asked !== open) return;
    if (error.code === "REPORT_ERASED") return show("gone", h("p", { role: "status", testid: "erased" }, error.message));
    const retry = h("button", { class: "primary", testid: "viewer-retry", on: { click: () => load(asked) } }, "Try again");
    show("error", h("p", { role: "alert" }, `The report could not be loaded. ${api.explain(error)}`), retry);
    retry.focus();
  }
}

function show(stage, ...content) {
  dialog.dataset.stage = stage;
  body.replaceChildren(...content);
  body.scrollTop = 0;
  return body;
}

/** The opener may have been drawn anew meanwhile: then its successor gets the focus. */
function closed() {
  if (!open) return;
  const { id, opener, request } = open;
  open = null;
  request.abort();
  body.replaceChildren();
  const again = opener?.isConnected ? opener : document.querySelector(`[data-testid="open-report"][data-job="${CSS.escape(id)}"]`);
  (again ?? byId("text")).focus();
}

export function startViewer() {
  dialog.addEventListener("close", closed);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close()); // the backdrop
  byId("viewer-close").addEventListener("click", () => dialog.close());
  byId("viewer-copy").addEventListener("click", (event) => press(event.currentTarget, () => copyText(api.reportText(open.id))));
}
