// How the search is run: which methods are shown, beams, rounds, answers, and words that must or must not appear.

import { byId, debounced, make } from "./dom.js";
import { nameOf } from "./results.js";
import { FIRST_METHODS, wordsIn } from "./state.js";

const NUMBERS = ["num_beams", "num_rounds", "num_return_sequences", "diversity_penalty"];
const WORDS = ["must_include", "bad_words"];

/** `change()` is called after the state has been changed. */
export function startOptions(state, { change }) {
  const form = byId("options");
  const later = debounced(change, 150);

  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    if (NUMBERS.includes(target.name)) {
      state.options[target.name] = Number(target.value);
      byId(`${target.name}-value`).textContent = target.value;
      later();
    } else if (WORDS.includes(target.name)) {
      state[target.name] = wordsIn(target.value);
      later();
    } else if (target.name === "start") {
      state.options.start = target.value;
      change();
    } else if (target.name === "method") {
      const boxes = [...form.querySelectorAll("[name=method]")];
      state.methods = boxes.filter((box) => box.checked).map((box) => box.value);
      change();
    }
  });

  function show() {
    for (const name of NUMBERS) {
      form.elements[name].value = state.options[name];
      byId(`${name}-value`).textContent = state.options[name];
    }
    form.elements.start.value = state.options.start;
    for (const name of WORDS) {
      if (document.activeElement !== form.elements[name]) form.elements[name].value = state[name].join(" ");
    }
    for (const box of form.querySelectorAll("[name=method]")) box.checked = state.methods.includes(box.value);
  }

  /** The methods that the service has, the three of the first paint before the others. */
  function offer(methods) {
    const place = ({ name }) => (FIRST_METHODS.includes(name) ? FIRST_METHODS.indexOf(name) : FIRST_METHODS.length);
    const sorted = methods.toSorted((a, b) => place(a) - place(b));
    byId("methods").replaceChildren(
      ...sorted.map(({ name, description }) =>
        make(
          "label",
          { class: "chip", title: description },
          make("input", { type: "checkbox", name: "method", value: name }),
          make("span", {}, nameOf(name)),
        ),
      ),
    );
    show();
  }

  return { show, offer };
}

