// What is on the page as Python, as curl, and as a link.

import { byId } from "./dom.js";
import { isOwn } from "./picture.js";
import { encode, requestFor } from "./state.js";

const KINDS = { python, curl, link };

/** Gives a function that shows the state anew. */
export function startSharing(state) {
  let kind = "python";
  const [code, said] = [byId("share-code"), byId("share-said")];

  byId("share-kinds").addEventListener("change", (event) => {
    kind = event.target.value;
    show();
  });
  byId("copy").addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(code.value);
      said.textContent = "Copied.";
    } catch {
      code.select();
      said.textContent = "Selected; copy it with the keyboard.";
    }
  });

  function show() {
    code.value = KINDS[kind](state);
    code.rows = Math.min(12, code.value.split("\n").length + 1);
    said.textContent = kind === "link" && isOwn(state.picture) ? "The link holds your picture." : "";
  }
  return show;
}

/** The method whose search is quoted: bibs, or the first of those that are shown. */
const quoted = (state) => (state.methods.includes("bibs") ? "bibs" : state.methods[0]);

const fileOf = (picture) => (isOwn(picture) ? "picture.jpg" : `${picture}.jpg`);

export function python(state) {
  const { template, method, ...options } = requestFor(state, quoted(state));
  const given = [JSON.stringify(template)];
  if (state.picture !== "none") given.push(`images="${fileOf(state.picture)}"`);
  if (method !== "bibs") given.push(`method="${method}"`);
  for (const [name, value] of Object.entries(options)) given.push(`${name}=${JSON.stringify(value)}`);
  const call = `infiller(${given.join(", ")})`;
  return [
    "from bibs import Infiller",
    "",
    "infiller = Infiller.from_pretrained()",
    `completions = ${call}`,
    "for completion in completions:",
    "    print(completion.text, completion.score)",
  ].join("\n");
}

export function curl(state) {
  const request = requestFor(state, quoted(state));
  const address = new URL("v1/fill", location.href.split("#")[0]);
  const body = JSON.stringify(request).replaceAll("'", "'\\''");
  if (state.picture === "none") {
    return `curl -s ${address} -H 'content-type: application/json' \\\n  -d '${body}'`;
  }
  const photo = new URL(`static/photos/${state.picture}.jpg`, location.href);
  const first = isOwn(state.picture) ? "" : `curl -sO ${photo}\n`;
  return `${first}curl -s ${address} -F 'request=${body}' \\\n  -F image=@${fileOf(state.picture)}`;
}

export function link(state) {
  return `${location.href.split("#")[0]}#${encode(state)}`;
}
