// What else would have fitted: a small dialog beside a filled word.

import { byId, make } from "./dom.js";
import { odds, surprise } from "./fit.js";

/** `use(word, place)` fixes a word of a blank, `forbid(word)` bans it; a place is {blank, offset, span}. */
export function startAlternatives({ use, forbid }) {
  const dialog = byId("alternatives");

  // A click beside the dialog closes it.
  dialog.addEventListener("click", (event) => {
    if (event.target === dialog) dialog.close();
  });
  byId("close-alternatives").addEventListener("click", () => dialog.close());

  return function open(button, completion, index) {
    const word = completion.words[index];
    const offset = completion.words.slice(0, index).filter((other) => other.blank === word.blank).length;
    const place = { blank: word.blank, offset, span: completion.spans[word.blank] };
    const act = (run) => () => {
      dialog.close();
      run();
    };
    byId("alternatives-title").textContent = `“${word.text}”`;
    byId("alternatives-fit").textContent =
      `${odds(surprise(word.forward))} after what stands left of it, ` +
      `${odds(surprise(word.backward))} before what stands right of it.`;
    const others = [{ ...word, now: true }, ...word.alternatives].sort((a, b) => b.probability - a.probability);
    byId("alternatives-list").replaceChildren(
      ...others.map((other) => make("li", {}, choice(other, act(() => use(other.text, place))))),
    );
    const ban = make("button", { type: "button", class: "plain" }, `Never use “${word.text}”`);
    ban.addEventListener("click", act(() => forbid(word.text)));
    byId("alternatives-ban").replaceChildren(ban);
    dialog.showModal();
    placeBeside(dialog, button);
  };
}

function choice(word, onclick) {
  const percent = share(word.probability);
  const label = `${word.now ? "Keep" : "Use"} “${word.text}”, ${percent}`;
  return make(
    "button",
    { type: "button", class: word.now ? "choice now" : "choice", "aria-label": label, onclick },
    make("span", { class: "text" }, word.text),
    make("meter", { min: 0, max: 1, value: word.probability, "aria-hidden": "true" }),
    make("span", { class: "percent" }, percent),
  );
}

function share(probability) {
  const percent = 100 * probability;
  if (percent > 99.9) return "> 99.9 %";
  return percent < 0.1 ? "< 0.1 %" : `${percent.toFixed(percent < 10 ? 1 : 0)} %`;
}

/** On a wide screen below the word; a narrow one has it at its foot, by the style sheet. */
function placeBeside(dialog, button) {
  const narrow = window.matchMedia("(max-width: 40rem)").matches;
  const [box, size] = [button.getBoundingClientRect(), dialog.getBoundingClientRect()];
  const left = Math.min(Math.max(8, box.left + box.width / 2 - size.width / 2), innerWidth - size.width - 8);
  const below = box.bottom + 6;
  const top = below + size.height < innerHeight ? below : Math.max(8, box.top - size.height - 6);
  dialog.style.left = narrow ? "" : `${left}px`;
  dialog.style.top = narrow ? "" : `${top}px`;
}
