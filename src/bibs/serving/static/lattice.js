// The lattice of one moment of a search, and the curve of the joint score over its passes, drawn as SVG.

import { draw } from "./dom.js";

const COLUMN = 104;
const ROW = 40;
const BOX = { width: 88, height: 28 };
const HEAD = 30;

const middle = (column) => (column + 1.5) * COLUMN;
const line = (row) => HEAD + (row + 0.5) * ROW;

/** `view` is what `lookAt` gives, `around` the words left and right of the blanks. */
export function lattice(view, around) {
  const rows = Math.max(3, 1 + Math.max(...[...view.near.nodes, ...view.far.nodes].map((node) => node.row)));
  const [width, height] = [(view.width + 2) * COLUMN, HEAD + rows * ROW + 6];
  const anchor = (column) => ({ column, row: (rows - 1) / 2 });
  const [left, right] = [anchor(-1), anchor(view.width)];
  const [root, beyond] = view.forward ? [left, right] : [right, left];
  const curves = [
    ...view.joins.map(([node, end]) => curve(node, end ?? beyond, "join")),
    ...view.near.edges.map(([node, parent]) => curve(node, parent ?? root, kind(node))),
    ...view.far.edges.map(([node, parent]) => curve(node, parent ?? beyond, "far")),
  ];
  const x = middle(view.column) - COLUMN / 2;
  return draw(
    "svg",
    { width, height, viewBox: `0 0 ${width} ${height}`, "aria-hidden": "true" },
    draw("rect", { class: "slot", x: x + 3, y: 0, width: COLUMN - 6, height, rx: 8 }),
    label(view.column, "this slot"),
    ...curves,
    given(left, around[0]),
    given(right, around[1]),
    ...[...view.far.nodes, ...view.near.nodes].map(box),
  );
}

const kind = (node) => (node.dead ? "dead" : node.best ? "best" : "alive");

function label(column, text) {
  return draw("text", { class: "label", x: middle(column), y: 18, "text-anchor": "middle" }, text);
}

function curve(one, other, className) {
  const [a, b] = one.column < other.column ? [one, other] : [other, one];
  const [x0, x1] = [middle(a.column) + BOX.width / 2, middle(b.column) - BOX.width / 2];
  const bend = (x0 + x1) / 2;
  const d = `M${x0} ${line(a.row)} C${bend} ${line(a.row)} ${bend} ${line(b.row)} ${x1} ${line(b.row)}`;
  return draw("path", { class: className, d });
}

function box(node) {
  const place = { x: middle(node.column) - BOX.width / 2, y: line(node.row) - BOX.height / 2, rx: 6, ...BOX };
  const score = node.score === null ? "" : `: ${node.score.toFixed(2)}`;
  return draw(
    "g",
    { class: `node ${node.side === "far" ? "far" : kind(node)}` },
    draw("title", {}, node.words.join(" ") + score),
    draw("rect", place),
    word(node, node.word),
  );
}

const given = (node, text) => draw("g", { class: "node given" }, word(node, text));

function word(node, text) {
  const room = BOX.width - 12;
  const tight = text.length > 10 ? { textLength: room, lengthAdjust: "spacingAndGlyphs" } : {};
  return draw("text", { x: middle(node.column), y: line(node.row) + 5, "text-anchor": "middle", ...tight }, text);
}

const CURVE = { width: 320, height: 84, left: 44, pad: 10 };

/** S of the best sentence of every pass; `choose(pass)` is called on a click. */
export function scoreCurve(trace, current, choose) {
  const scores = trace.map((pass) => pass.score ?? Math.min(...trace.map((each) => each.score ?? 0)) - 10);
  const [low, high] = [Math.min(...scores), Math.max(...scores)];
  const step = (CURVE.width - CURVE.left - CURVE.pad) / Math.max(1, trace.length - 1);
  const x = (index) => CURVE.left + index * step;
  const y = (score) => CURVE.pad + ((high - score) / Math.max(1e-9, high - low)) * (CURVE.height - 2 * CURVE.pad);
  const points = scores.map((score, index) => `${x(index).toFixed(1)},${y(score).toFixed(1)}`).join(" ");
  return draw(
    "svg",
    { viewBox: `0 0 ${CURVE.width} ${CURVE.height}`, class: "curve", "aria-hidden": "true" },
    ...[high, low].map((score) => draw("text", { x: 0, y: y(score) + 4 }, score.toFixed(1).replace("-", "−"))),
    draw("polyline", { points }),
    ...scores.map((score, index) => {
      const now = index === current ? { class: "now", r: 5 } : { r: 3 };
      const title = draw("title", {}, `pass ${index + 1}: ${score.toFixed(1)}`);
      return draw("circle", { cx: x(index), cy: y(score), ...now, onclick: () => choose(index) }, title);
    }),
  );
}
