// The page: what the user has chosen, what the service answers, and what is shown of it.

import * as api from "./api.js";
import { startAlternatives } from "./alternatives.js";
import { byId, make } from "./dom.js";
import { startEditor } from "./editor.js";
import { startOptions } from "./options.js";
import { pictureData, startPictures } from "./picture.js";
import { startPlayer } from "./player.js";
import { rowsOf } from "./results.js";
import { fix } from "./sentence.js";
import { startSharing } from "./share.js";
import { decode, encode, requestFor } from "./state.js";

const ALTERNATIVES = 7;
const PATIENCE = 300; // milliseconds in which answers are awaited, to be shown together
const MEMORY = 60; // answers that need not be asked for again, when something is undone, say

const state = decode(location.hash);
let shown = encode(state); // the state on the page, as part of a link
let last = copy(state);
const past = []; // earlier states, to undo
const remembered = new Map(); // request as text -> answer
let answers = new Map(); // method -> {completions, warning} or {error}
let running = new AbortController();

const showSentence = startEditor(state, { change: (tokens) => change({ tokens }), spans: () => best()?.spans ?? [] });
const showPicture = startPictures(state, { choose: (picture) => change({ picture }), fail: showError });
const showSharing = startSharing(state);
const options = startOptions(state, { change: () => change({}) });
const loadPasses = startPlayer();
const openAlternatives = startAlternatives({
  use: (word, { blank, offset, span }) => change({ tokens: fix(state.tokens, blank, offset, word, span) }),
  forbid: (word) => change({ bad_words: [...new Set([...state.bad_words, word.toLowerCase()])] }),
});

/** Every change goes this way: it can be undone, is shown and searched. To open or close the passes is no change. */
function change(changes) {
  Object.assign(state, changes);
  const closed = (some) => encode({ ...some, open: false });
  if (closed(state) !== closed(last)) past.push(last);
  go(state);
}

function go(to) {
  Object.assign(state, to);
  showState();
  search();
}

function copy(some) {
  return { ...some, options: { ...some.options } };
}

function showState() {
  last = copy(state);
  shown = encode(state);
  history.replaceState(null, "", shown ? `#${shown}` : location.pathname);
  showSentence();
  showPicture();
  showSharing();
  options.show();
  showRules();
  byId("undo").disabled = past.length === 0;
  byId("passes").open = state.open;
}

/** The words that were forbidden or demanded, each a button that takes the rule back. */
function showRules() {
  const rule = (kind, text) => (word) =>
    make(
      "button",
      { type: "button", onclick: () => change({ [kind]: state[kind].filter((other) => other !== word) }) },
      make("span", { class: "unseen" }, "Take back: "),
      `${text} “${word}” ×`,
    );
  byId("rules").replaceChildren(
    ...state.must_include.map(rule("must_include", "must have")),
    ...state.bad_words.map(rule("bad_words", "never")),
  );
}

/** Ask for all methods at once; a newer search gives up the one before. */
async function search() {
  running.abort();
  running = new AbortController();
  const { signal } = running;
  const found = new Map();
  const present = () => {
    if (signal.aborted) return;
    answers = found;
    showAnswers();
  };
  let patient = true;
  const impatient = setTimeout(() => {
    patient = false;
    showError(""); // of the search before
    if (found.size) present();
  }, PATIENCE);
  byId("answers").setAttribute("aria-busy", "true");
  const image = await pictureData(state.picture);
  await Promise.all(
    state.methods.map(async (method) => {
      const answer = await ask(method, image, signal);
      found.set(method, answer);
      if (!patient) present();
    }),
  );
  clearTimeout(impatient);
  if (signal.aborted) return;
  present();
  byId("answers").removeAttribute("aria-busy");
  byId("said").textContent = best() ? `Found: ${best().text}` : "";
  if (state.open) loadPasses(answers.get("bibs")?.completions?.[0], state.options.start);
}

async function ask(method, image, signal) {
  const request = { ...requestFor(state, method), alternatives: ALTERNATIVES };
  request.template = [request.template]; // in a list, a template that cannot be filled is an answer, not a failure
  if (image) request.image = [image];
  if (state.open && method === "bibs") request.trace = true;
  const key = JSON.stringify(request);
  if (remembered.has(key)) return remembered.get(key);
  try {
    const { results } = await api.fill(request, signal);
    if (remembered.size === MEMORY) remembered.delete(remembered.keys().next().value); // the oldest
    remembered.set(key, results[0]);
    return results[0];
  } catch (error) {
    return { error: error.message };
  }
}

/** Where all methods say that the same is wrong, it is said once, and the answers before it stay in place. */
function showAnswers() {
  const errors = new Set(state.methods.map((method) => answers.get(method)?.error));
  const [common] = errors.size === 1 ? errors : [];
  showError(state.methods.length ? (common ?? "") : "Choose a method below.");
  const table = byId("answers");
  table.classList.toggle("stale", Boolean(common));
  if (common) return;
  const found = state.methods.flatMap((method) => answers.get(method)?.completions ?? []);
  const highest = Math.max(...found.map(({ score }) => score ?? -Infinity));
  const before = new Map([...table.tBodies].map((body) => [body.dataset.method, body]));
  const bodies = state.methods.map((method) => {
    const waits = !answers.has(method) && before.has(method); // what was found before stays until there is better
    return waits ? before.get(method) : rowsOf(method, answers.get(method) ?? null, highest);
  });
  const held = document.activeElement?.closest("button.word")?.dataset;
  table.replaceChildren(table.tHead, ...bodies);
  if (held) holdAgain(held);
  fitTable();
}

/** The focus goes back to the word where it was; where that is given now, to another of the same method. */
function holdAgain({ method, place, word }) {
  const buttons = [...byId("answers").querySelectorAll(`tbody[data-method="${method}"] button.word`)];
  const same = buttons.find(({ dataset }) => dataset.place === place && dataset.word === word);
  (same ?? buttons[0])?.focus();
}

/** Sentences that are too long for the columns of a table are set as paragraphs. */
function fitTable() {
  const table = byId("answers");
  table.classList.remove("flow");
  table.classList.toggle("flow", table.scrollWidth > table.parentElement.clientWidth);
}

function showError(text) {
  byId("error").textContent = text;
}

/** The answer that the sentence takes words from: that of bibs, or of the first method shown. */
function best() {
  return (answers.get("bibs") ?? answers.get(state.methods[0]))?.completions?.[0];
}

function showStatus(kind, text) {
  const status = byId("status");
  if (status.dataset.kind === kind) return;
  if (kind === "away") remembered.clear(); // it may come back with another model
  status.dataset.kind = kind;
  status.textContent = text;
}

function askForKey() {
  const dialog = byId("key-dialog");
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue && byId("key").value), { once: true });
  });
}

async function offerWhatThereIs() {
  const [{ methods }, { data }] = await Promise.all([api.methods(), api.models()]);
  options.offer(methods);
  if (data[0].pictures) return;
  byId("pictures").hidden = true;
  byId("no-picture").textContent = `No pictures here: ${data[0].why_no_pictures ?? "the model reads words alone"}`;
  if (state.picture !== "none") change({ picture: "none" });
}

byId("answers").addEventListener("click", (event) => {
  const word = event.target.closest("button.word");
  const completion = word && answers.get(word.dataset.method)?.completions?.[Number(word.dataset.place)];
  if (completion) openAlternatives(word, completion, Number(word.dataset.word));
});
byId("passes").addEventListener("toggle", ({ target }) => {
  if (target.open !== state.open) change({ open: target.open });
});
byId("undo").addEventListener("click", () => go({ ...past.pop(), open: state.open }));
byId("start-over").addEventListener("click", () => change(decode("")));
addEventListener("resize", fitTable);
addEventListener("hashchange", () => location.hash.slice(1) !== shown && go(decode(location.hash)));

api.listen(showStatus, askForKey);
showState();
search();
offerWhatThereIs().catch((error) => showError(error.message));
