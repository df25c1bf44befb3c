// Answers to a press of a button: the small messages at the window's edge, the clipboard, and what went wrong.

import { explain } from "./api.js";
import { byId, h } from "./dom.js";

const TOAST_MS = 8000;

/** A line at the window's edge that goes by itself; `action` is `[label, function]`. */
export function toast(text, action) {
  const close = () => element.remove();
  const act = action && h("button", { on: { click: () => (close(), action[1]()) } }, action[0]);
  const element = h("p", { class: "toast", testid: "toast" }, h("span", { dir: "auto" }, text), act);
  const box = byId("toasts");
  box.append(element);
  box.hidePopover(); // shown anew it stands above a dialog that was opened meanwhile
  box.showPopover();
  setTimeout(close, TOAST_MS);
}

/** Runs what a button does, with the button off meanwhile; a refusal is told in the server's words. */
export async function press(button, act) {
  if (button.ariaDisabled === "true") return;
  button.ariaDisabled = "true"; // not `disabled`, which would take the focus away
  try {
    await act();
  } catch (error) {
    toast(explain(error));
  } finally {
    button.ariaDisabled = null;
  }
}

/** Puts text that is still on its way into the clipboard; the browser wants this asked for within the click itself. */
export async function copyText(promise) {
  const blob = promise.then((text) => new Blob([text], { type: "text/plain" }));
  await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
  toast("Copied.");
}
