// What a person adds to the knowledge store: files, which are handed over here, and pages, which a job of the chat reads.

import * as api from "./api.js";
import { newId } from "./composer.js";
import { byId } from "./dom.js";
import { goTo, showSidebar } from "./sessions.js";
import { state } from "./state.js";
import { press, toast } from "./toast.js";

const TYPES = { txt: "text/plain", md: "text/markdown", markdown: "text/markdown", html: "text/html", htm: "text/html", pdf: "application/pdf" };
const dialog = byId("adding");
const address = byId("adding-address");
const files = byId("adding-files");
const problem = byId("adding-problem");

const typeOf = (name) => TYPES[name.split(".").pop().toLowerCase()] ?? "application/octet-stream";

/** A file in base64, without the head of a data address. */
function contentOf(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result.slice(reader.result.indexOf(",") + 1));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(file);
  });
}

function tell(text) {
  problem.hidden = !text;
  problem.textContent = text;
}

/** Each file for itself: one that cannot be taken keeps no other back. Returns why, of those that were not. */
async function addFiles() {
  const why = [];
  for (const file of [...files.files]) {
    try {
      await api.addDocument(file.name, await contentOf(file), typeOf(file.name));
      toast(`Added: ${file.name}`);
    } catch (error) {
      why.push(`${file.name}: ${api.explain(error)}`);
    }
  }
  files.value = "";
  return why;
}

async function addPage() {
  const source = address.value.trim();
  if (!source) return;
  const here = state.current ?? (await api.newSession(state.incognito)).id;
  await api.ingest(here, source, newId());
  address.value = "";
  if (here !== state.current) goTo(here);
}

async function add() {
  tell("");
  const why = await addFiles();
  try {
    await addPage();
  } catch (error) {
    why.push(api.explain(error));
  }
  if (why.length) tell(why.join("\n"));
  else dialog.close();
}

export function startAdding() {
  byId("add").addEventListener("click", () => {
    showSidebar(false);
    tell("");
    dialog.showModal();
  });
  byId("adding-form").addEventListener("submit", (event) => {
    event.preventDefault();
    if (address.value.trim() || files.files.length) press(byId("adding-go"), add);
  });
  byId("adding-close").addEventListener("click", () => dialog.close());
}
