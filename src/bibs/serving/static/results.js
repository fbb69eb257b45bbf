// The answers: one row per method and answer, the fill in place, so that the edges of the holes stand below each other.

import { draw, make } from "./dom.js";
import { DEEPEST, level, odds, surprise, verdict, worstJoin } from "./fit.js";

export const NAMES = {
  forward: "Left to right",
  backward: "Right to left",
  bibs: "Both ways: bibs",
  "rerank-max": "Re-ranked, by one model",
  "rerank-sum": "Re-ranked, by both",
  gsn: "Gibbs sampling in order",
  "gsn-random": "Gibbs sampling",
  coordinate: "Word by word",
  "unidirectional-gibbs": "One-way Gibbs sampling",
  exact: "All fills tried",
};

export const nameOf = (method) => NAMES[method] ?? method;

/** The rows of one method. `answer` is {completions, warning}, {error}, or null while there is none. */
export function rowsOf(method, answer, best) {
  const body = make("tbody", { "data-method": method, class: method === "bibs" ? "ours" : null });
  if (!answer?.completions?.length) {
    const text = answer === null ? "searching…" : (answer.error ?? answer.warning ?? "nothing was found");
    body.append(make("tr", {}, heading(method), make("td", { class: "message", colspan: 99 }, text)));
    return body;
  }
  answer.completions.forEach((completion, place) => {
    const judged = verdict(worstJoin(completion));
    const first = place === 0 ? heading(method, judged) : heading(null, judged, place);
    const score = make("td", { class: completion.score === best ? "score best" : "score" }, number(completion.score));
    const segments = cells(completion).map((words, index) =>
      make("td", { class: index % 2 ? "fill" : "given" }, ...words.flatMap((word) => piece(word, method, place))),
    );
    body.append(make("tr", { "data-place": place }, first, ...segments, score));
  });
  if (answer.warning) {
    body.append(make("tr", {}, make("td"), make("td", { class: "message", colspan: 99 }, answer.warning)));
  }
  return body;
}

export const number = (value) => (value === null ? "−∞" : value.toFixed(1).replace("-", "−"));

function heading(method, judged = null, place = 0) {
  const note = judged && make("span", { class: judged.clash ? "note clash" : "note" }, judged.text);
  const name = method ? nameOf(method) : `Answer ${place + 1}`;
  return make("th", { scope: "row" }, make("span", { class: method ? "name" : "name further" }, name), note);
}

/** The words in columns: given, blank 0, given, blank 1, ..., given. */
function cells(completion) {
  const columns = Array.from({ length: 2 * completion.spans.length + 1 }, () => []);
  let last = -1; // the blank that was met last
  let tail = completion.text;
  completion.words.forEach((word, index) => {
    if (word.blank !== null) last = word.blank;
    const offset = completion.words.slice(0, index).filter((other) => other.blank === word.blank).length;
    columns[word.blank === null ? 2 * last + 2 : 2 * word.blank + 1].push({ ...word, index, offset });
    tail = tail.slice(word.before.length + word.text.length);
  });
  attachPunctuation(columns.flat(), tail);
  return columns;
}

/** What stands between two words goes with the one that it touches. */
function attachPunctuation(words, tail) {
  words.forEach((word, index) => {
    const following = index + 1 < words.length ? words[index + 1].before : tail;
    word.closing = following.match(/^\S*/)[0];
    word.opening = index === 0 || /\s/.test(word.before) ? word.before.match(/\S*$/)[0] : "";
    word.space = /\s/.test(following) ? " " : "";
  });
}

function piece(word, method, place) {
  const [left, right] = [surprise(word.forward), surprise(word.backward)];
  const worst = level(Math.max(left, right));
  const label = `${word.text}: ${odds(left)} after what stands left, ${odds(right)} before what stands right`;
  const given = word.blank === null;
  const attributes = { class: `word level-${worst}`, title: label.replace(`${word.text}: `, "") };
  if (!given) {
    Object.assign(attributes, { type: "button", "data-method": method, "data-place": place, "data-word": word.index });
    Object.assign(attributes, { "aria-haspopup": "dialog", "aria-label": `${label}. What else would fit?` });
  }
  const shown = make("span", { class: "text" }, word.opening + word.text + word.closing);
  return [make(given ? "span" : "button", attributes, shown, icicles(left, right)), word.space];
}

/** Two bars that hang below a word: the deeper, the worse it fits the words to its left, and to its right. */
function icicles(left, right) {
  const bar = (value, x) =>
    draw("rect", { class: `level-${level(value)}`, x, width: 1, height: Math.min(value, DEEPEST).toFixed(1) });
  const box = { class: "fit", viewBox: `0 0 2 ${DEEPEST}`, preserveAspectRatio: "none", "aria-hidden": "true" };
  return draw("svg", box, bar(left, 0), bar(right, 1));
}
