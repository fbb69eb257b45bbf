// Step or play through the passes of a search.

import { byId, make } from "./dom.js";
import { lattice, scoreCurve } from "./lattice.js";
import { lookAt, readable } from "./passes.js";
import { number } from "./results.js";

const PACE = 600; // milliseconds a slot

export function startPlayer() {
  let film = null; // {trace, width, start, firstSlot, around}
  let place = 0; // pass * width + slot
  let timer = 0;

  const [slider, play] = [byId("moment"), byId("play")];
  slider.addEventListener("input", () => go(Number(slider.value)));
  byId("back").addEventListener("click", () => go(place - 1));
  byId("forth").addEventListener("click", () => go(place + 1));
  byId("pass-back").addEventListener("click", () => go((Math.ceil(place / film.width) - 1) * film.width));
  byId("pass-forth").addEventListener("click", () => go((Math.floor(place / film.width) + 1) * film.width));
  play.addEventListener("click", () => (timer ? stop() : run()));

  function run() {
    if (place === last()) place = 0;
    go(place, true);
    timer = setInterval(() => (place < last() ? go(place + 1, true) : stop()), PACE);
    play.textContent = "Pause";
  }

  function stop() {
    clearInterval(timer);
    timer = 0;
    play.textContent = "Play";
  }

  const last = () => film.trace.length * film.width - 1;

  function go(to, playing = false) {
    if (!playing) stop();
    place = Math.min(Math.max(0, to), last());
    show();
  }

  function show() {
    const [pass, slot] = [Math.floor(place / film.width), place % film.width];
    const view = lookAt(film.trace, pass, slot, film);
    const way = view.forward ? "left to right" : "right to left";
    slider.max = last();
    slider.value = place;
    const moment = `Pass ${pass + 1} of ${film.trace.length}, ${way}, slot ${view.column + 1} of ${film.width}`;
    slider.setAttribute("aria-valuetext", moment);
    byId("moment-said").textContent = moment;
    byId("back").disabled = byId("pass-back").disabled = place === 0;
    byId("forth").disabled = byId("pass-forth").disabled = place === last();
    byId("lattice").replaceChildren(lattice(view, film.around));
    follow(view);
    byId("curve").replaceChildren(scoreCurve(film.trace, pass, (chosen) => go(chosen * film.width)));
    byId("curve-said").textContent = `S of the best sentence of this pass: ${number(film.trace[pass].score)}`;
    list("kept", view.kept, view.forward);
    const silence = view.heard.length ? "the given words beyond the blank" : "nothing yet: a plain beam search";
    list("heard", view.heard.filter(({ words }) => words.length), !view.forward, silence);
  }

  /** Keep the slot in view where the lattice is wider than its frame. */
  function follow(view) {
    const frame = byId("lattice");
    const share = (view.column + 1.5) / (view.width + 2);
    frame.scrollLeft = share * frame.scrollWidth - frame.clientWidth / 2;
  }

  /** Show the passes that led to a completion; null where there are none. */
  return function load(completion, start) {
    stop();
    const trace = completion?.trace ?? [];
    byId("player").hidden = trace.length === 0 || trace[0].frontiers.length === 0;
    byId("no-passes").hidden = !byId("player").hidden;
    if (byId("player").hidden) return;
    const firstSlot = completion.words.findIndex((word) => word.blank !== null);
    const width = trace[0].frontiers.length;
    const text = (index) => completion.words[index]?.text ?? "";
    const around = [text(firstSlot - 1) || "start", text(firstSlot + width) || "end"];
    film = { trace, width, start, firstSlot, around };
    go(0);
  };
}

/** Partial fills with their running scores, and in a table with a third column with the far side's message. */
function list(id, partials, fromLeft, silence = "") {
  const table = byId(id);
  const columns = table.tHead.rows[0].cells.length;
  const rows = partials.map(({ words, score, message = null }) => {
    const numbers = [score, message].slice(0, columns - 1).map((value) => (value === null ? "·" : number(value)));
    return make("tr", {}, ...[readable(words, fromLeft), ...numbers].map((text) => make("td", {}, text)));
  });
  const silent = make("tr", {}, make("td", { colspan: columns, class: "silence" }, silence));
  table.tBodies[0].replaceChildren(...(rows.length ? rows : [silent]));
}
