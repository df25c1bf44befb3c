// Who is there: the login that a server with users asks for, and whose console this is. It keeps no token.

import * as api from "./api.js";
import { byId, setText } from "./dom.js";

const dialog = byId("login");
let user = null;

/** Shows the login over everything, however often it is asked for. */
function ask() {
  if (dialog.open) return;
  dialog.showModal();
  byId("token").focus();
}

function tell(problem) {
  setText(byId("login-problem"), problem);
  byId("login-problem").hidden = !problem;
}

function show({ user: name, required }) {
  user = name;
  setText(byId("user"), name);
  byId("who").hidden = !required;
}

/** What is on the page is another's, once somebody else is let in: then it is read anew from the start. */
async function submit(event) {
  event.preventDefault();
  const token = byId("token").value;
  byId("token").value = "";
  tell("");
  try {
    const found = await api.logIn(token);
    if (user === null) location.reload();
    else if (user !== found.user) location.replace("/"); // the address may name a chat of whoever was here before
    else dialog.close();
  } catch (error) {
    tell(api.explain(error));
    byId("token").focus();
  }
}

async function leave() {
  await api.logOut();
  location.replace("/");
}

/** Resolves when somebody is let in; where the server cannot be reached it resolves too, and others say so. */
export async function enter() {
  byId("login-form").addEventListener("submit", submit);
  byId("log-out").addEventListener("click", leave);
  dialog.addEventListener("cancel", (event) => event.preventDefault());
  api.whenRefused(ask);
  try {
    show(await api.whoAmI());
  } catch (error) {
    if (error.status === 401) await new Promise(() => {}); // the page is loaded anew after the login
  }
}
