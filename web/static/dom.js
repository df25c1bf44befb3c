// Makes and keeps page elements. All text goes through `visible`; HTML is set in one place, and only what the server cleaned.

const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e\u2066-\u2069]/g;

export const byId = (id) => document.getElementById(id);

/** The text with control characters and direction overrides shown as signs, so that a title cannot dress up as another. */
export function visible(text) {
  const name = (sign) => `[U+${sign.charCodeAt(0).toString(16).toUpperCase().padStart(4, "0")}]`;
  return String(text).replaceAll("\r\n", "\n").replace(HIDDEN, name);
}

/** An element: `on` holds listeners, `testid` and `job` become data attributes, null and false are left out. */
export function h(tag, { on = {}, testid, job, ...attributes } = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries({ "data-testid": testid, "data-job": job, ...attributes })) {
    if (value !== undefined && value !== null && value !== false) element.setAttribute(name, value === true ? "" : visible(value));
  }
  for (const [event, listener] of Object.entries(on)) element.addEventListener(event, listener);
  const kept = children.flat().filter((child) => child !== null && child !== undefined && child !== false);
  element.append(...kept.map((child) => (child instanceof Node ? child : visible(child))));
  return element;
}

export function setText(element, text) {
  const shown = visible(text);
  if (element.textContent !== shown) element.textContent = shown;
}

/** Sets HTML that the server rendered and cleaned; nothing else may be handed in. */
export function setCleanHtml(element, html) {
  element.innerHTML = html;
  return element;
}

/** Shows the server's HTML where there is some, and otherwise the text as it is. */
export function prose(tag, attributes, html, text) {
  const element = h(tag, attributes);
  if (typeof html === "string") return setCleanHtml(element, html);
  element.classList.add("plain");
  setText(element, text ?? "");
  return element;
}

/** `make(object)`, made once an object: the store replaces what it holds and never changes it in place. */
export function once(make) {
  const made = new WeakMap();
  return (object) => made.get(object) ?? made.set(object, make(object)).get(object);
}

const kept = new WeakMap();

/**
 * Makes `parent` hold one element an entry, in order: `{key, sig, make, update}`. An element stays as long as its `sig`
 * does, so that focus, selection and scroll survive what changes elsewhere.
 */
export function keyed(parent, entries) {
  const before = kept.get(parent) ?? new Map();
  const after = new Map();
  for (const { key, sig = "", make, update } of entries) {
    const old = before.get(key);
    const element = old?.sig === sig ? old.element : make();
    if (old && element !== old.element) replace(old.element, element);
    update?.(element);
    after.set(key, { sig, element });
  }
  for (const [key, { element }] of before) if (!after.has(key)) element.remove();
  kept.set(parent, after);
  const focused = document.activeElement;
  let next = parent.firstChild;
  for (const { element } of after.values()) {
    if (element === next) next = next.nextSibling;
    else parent.insertBefore(element, next);
  }
  if (focused !== document.activeElement && parent.contains(focused)) focused.focus(); // a move takes the focus away
}

function replace(old, element) {
  const focused = old.contains(document.activeElement) ? document.activeElement.dataset.testid : null;
  old.replaceWith(element);
  if (focused) (element.querySelector(`[data-testid="${focused}"]`) ?? element).focus();
}
