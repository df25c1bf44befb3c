// What of an answer is more than its text: named artifacts, structured data, files, links. Shown, and never opened here.

import { h, prose } from "./dom.js";
import { bytes } from "./format.js";

const PARTS = {
  text: ({ html, text }) => prose("div", { class: "prose", dir: "auto" }, html, text),
  data: ({ text, cut, href }) =>
    h("div", { class: "data", testid: "data-part" },
      h("pre", { tabindex: 0, "aria-label": "Structured data" }, text),
      h("p", { class: "facts" }, cut && h("span", {}, "This is only its beginning."), download(href, "the data"))),
  file: ({ name, media_type: type, bytes: size, href }) =>
    h("p", { class: "file", testid: "file-part" },
      h("span", { class: "name", dir: "auto" }, name || "File"),
      h("span", { class: "hint" }, [type, bytes(size)].filter(Boolean).join(" · ")),
      download(href, name || "the file")),
  link: ({ name, media_type: type, url }) =>
    h("p", { class: "file", testid: "link-part" },
      name && h("span", { class: "name", dir: "auto" }, name), type && h("span", { class: "hint" }, type), leading(url)),
};

const download = (href, what) => h("a", { class: "button", href, download: true, testid: "download-part", "aria-label": `Download ${what}` }, "Download");

/** A link where the address is one of the web, and otherwise the address as it was written. */
function leading(url) {
  if (!/^https?:\/\/[^/]/i.test(url)) return h("span", { class: "address" }, url);
  return h("a", { class: "address", href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, url);
}

/** An answer with such parts, artifact by artifact; one that has a name stands under it. */
export function artifactViews(artifacts) {
  return artifacts.map(({ name, parts }) =>
    h("section", { class: "artifact", testid: "artifact", "aria-label": name },
      name && h("h3", { class: "title", dir: "auto" }, name), parts.map((part) => PARTS[part.kind]?.(part))));
}
