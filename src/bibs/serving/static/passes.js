// What a pass of the search saw at one slot, made ready to be drawn. Nothing here touches the page.
//
// A pass walks over the slots, from the left or from the right. Its frontier holds the partial fills that it keeps. It
// hears the frontiers that the passes of the far side had at the same slot: what stands beyond it.

const key = (words) => words.join(" ");

/** The passes of the far side that a pass hears: the last one, or with two chains of passes the last of either. */
export function heardBy(trace, number, start) {
  const { step, direction } = trace[number];
  const back = start === "both" ? 2 : 1;
  return trace.filter((pass) => pass.direction !== direction && pass.step < step && pass.step >= step - back);
}

/** The partial fills of so many words, as the pass read them; behind the last slot, its best fill. */
function frontier(pass, depth, firstSlot) {
  if (depth < pass.frontiers.length) return pass.frontiers[depth];
  const words = pass.words.slice(firstSlot, firstSlot + pass.frontiers.length);
  return [{ words: pass.direction === "forward" ? words : words.reverse(), score: null }];
}

/**
 * The lattice when pass `number` has just chosen the words of its slot `slot`.
 *
 * Nodes are {column, row, word, score, side, dead, best, message}, edges pairs of nodes or null for the text around the
 * blank. `firstSlot` is the place of the first slot among the words of the sentence.
 */
export function lookAt(trace, number, slot, { start, firstSlot }) {
  const pass = trace[number];
  const width = pass.frontiers.length;
  const forward = pass.direction === "forward";
  const top = frontier(pass, width, firstSlot)[0].words;
  const near = grow(
    slot + 1,
    (depth) => frontier(pass, depth, firstSlot),
    (depth) => (forward ? depth - 1 : width - depth),
  );
  markDead(near);
  for (const node of near.nodes) node.best = key(node.words) === key(top.slice(0, node.words.length));
  const kept = near.nodes.filter((node) => node.words.length === slot + 1);
  const passes = heardBy(trace, number, start);
  const messages = messagesOf(passes, width - slot);
  for (const node of kept) node.message = messages.get(node.word) ?? null;

  const beams = Math.max(...pass.frontiers.map((partials) => partials.length), kept.length);
  const heard = hear(passes, width - 1 - slot, firstSlot).slice(0, beams);
  const far = grow(
    heard.length ? width - 1 - slot : 0,
    (depth) => heard.map(({ words, score }) => ({ words: words.slice(0, depth), score })),
    (depth) => (forward ? width - depth : depth - 1),
  );
  for (const node of far.nodes) node.side = "far";
  const ends = far.nodes.filter((node) => node.words.length === width - 1 - slot);
  const partners = heard.length && !ends.length ? [null] : ends; // null: the text beyond the blank
  const joins = kept.flatMap((node) => partners.map((partner) => [node, partner]));
  return { width, forward, column: forward ? slot : width - 1 - slot, near, far, joins, kept, heard };
}

/**
 * What the far side says of the words of a slot: the most that its frontier comes to with each.
 *
 * The far side kept the best extensions of its frontier by that slot. For a word that it kept, the best partial fill
 * with it is among them; of other words the trace does not tell. `depth` is the length of the extensions.
 */
function messagesOf(passes, depth) {
  const messages = new Map();
  for (const { words, score } of passes.flatMap((pass) => pass.frontiers[depth] ?? [])) {
    messages.set(words.at(-1), Math.max(score, messages.get(words.at(-1)) ?? -Infinity));
  }
  return messages;
}

/** The distinct partial fills of the far side, best first. */
function hear(passes, depth, firstSlot) {
  const found = new Map();
  const partials = passes.flatMap((pass) => frontier(pass, depth, firstSlot));
  for (const partial of partials) found.set(key(partial.words), partial);
  return [...found.values()].sort((a, b) => b.score - a.score);
}

/** The tree of partial fills up to some depth: one node per distinct beginning, the best of each column on top. */
function grow(depth, partialsAt, columnAt) {
  const nodes = [];
  const edges = [];
  let parents = new Map();
  for (let level = 1; level <= depth; level++) {
    const here = new Map();
    for (const { words, score } of partialsAt(level).toSorted((a, b) => b.score - a.score)) {
      if (here.has(key(words))) continue;
      const parent = parents.get(key(words.slice(0, -1))) ?? null;
      const node = { words, word: words.at(-1), score, parent, column: columnAt(level), row: here.size, side: "near" };
      here.set(key(words), node);
      nodes.push(node);
      edges.push([node, parent]);
    }
    parents = here;
  }
  return { nodes, edges };
}

/** A partial fill is dead where nothing that was kept later goes on from it. */
function markDead({ nodes }) {
  const deepest = Math.max(0, ...nodes.map((node) => node.words.length));
  for (const node of nodes) node.dead = node.words.length < deepest;
  for (const node of nodes.filter((each) => each.words.length === deepest)) {
    for (let parent = node.parent; parent; parent = parent.parent) parent.dead = false;
  }
}

/** A partial fill from left to right. */
export const readable = (words, fromLeft) => (fromLeft ? words : words.toReversed()).join(" ");
