// The sentence on the page: each word a button, and the same sentence as text to type in.

import { byId, debounced, make } from "./dom.js";
import { format, holdsWord, isSlot, loosen, parse, tightenAll, toggle } from "./sentence.js";

/** `change(tokens)` is called with a new sentence; `spans()` gives what fills each blank now. */
export function startEditor(state, { change, spans }) {
  const sentence = byId("sentence");
  const typed = byId("template");
  const length = byId("any-length");

  sentence.addEventListener("click", (event) => {
    const index = event.target.closest("button")?.dataset.index;
    if (index !== undefined) change(toggle(state.tokens, Number(index), spans()));
  });
  sentence.addEventListener("keydown", (event) => {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (!step) return;
    const buttons = [...sentence.querySelectorAll("button")];
    buttons[buttons.indexOf(document.activeElement) + step]?.focus();
    event.preventDefault();
  });
  typed.addEventListener("input", debounced(() => change(parse(typed.value)), 250));
  typed.form.addEventListener("submit", (event) => event.preventDefault());
  length.addEventListener("click", () => {
    change(hasSlots(state.tokens) ? loosen(state.tokens) : tightenAll(state.tokens, spans()));
  });

  return function show() {
    const focused = sentence.contains(document.activeElement) ? document.activeElement.dataset.index : null;
    sentence.replaceChildren(...state.tokens.flatMap((token, index) => [tokenButton(token, index), " "]));
    if (focused !== null) sentence.querySelector(`[data-index="${focused}"]`)?.focus();
    if (document.activeElement !== typed) typed.value = format(state.tokens);
    length.disabled = !state.tokens.some((token) => token.blank);
    length.textContent = hasSlots(state.tokens) || length.disabled ? "Any length" : "This length";
  };
}

const hasSlots = (tokens) => tokens.some((token) => token.blank && isSlot(token));

function tokenButton(token, index) {
  if (!token.blank) {
    if (!holdsWord(token)) return token.text;
    return make("button", { type: "button", class: "token", "data-index": index, "aria-pressed": "false" }, token.text);
  }
  const open = !isSlot(token);
  const label = open ? `blank of any length (${token.blank})` : "blank";
  const attributes = { type: "button", class: open ? "token blank open" : "token blank", "data-index": index };
  return make(
    "span",
    { class: "around" },
    token.before,
    make("button", { ...attributes, "aria-pressed": "true", "aria-label": label }, open ? "…" : "\u00a0"),
    token.after,
  );
}
