// How badly a word fits its two sides: surprise = -log P, in nats, from the model that reads that side.

/** A surprise beyond this is drawn no deeper. */
export const DEEPEST = 12;

/** Two words clash where their surprises at the join come to this much: together once in 160,000. */
export const CLASH = 12;

export const surprise = (logProb) => (logProb === null ? Infinity : -logProb);

/** 0: fits well, 3: does not fit at all. */
export function level(value) {
  return value < 4 ? 0 : value < 6.5 ? 1 : value < 9 ? 2 : 3;
}

/** "1 in 33,000": a probability that one can picture. */
export function odds(value) {
  if (value === Infinity) return "never";
  const times = Math.exp(value);
  if (times < 1.5) return "nearly always";
  if (times > 1e9) return "less than 1 in a billion";
  const unit = 10 ** Math.max(0, Math.floor(Math.log10(times)) - 1);
  return `1 in ${(Math.round(times / unit) * unit).toLocaleString("en")}`;
}

/**
 * The join at which a completion fits worst, among those that touch a blank.
 *
 * A join has two surprises: what the left-to-right model thinks of the word after it, and what the right-to-left
 * model thinks of the word before it. The two ends of the sentence are joins too.
 */
export function worstJoin(completion) {
  const edge = (logProb) => ({ text: "", blank: null, forward: logProb, backward: logProb });
  const words = [edge(completion.start_score), ...completion.words, edge(completion.end_score)];
  let worst = null;
  for (let i = 0; i + 1 < words.length; i++) {
    const [before, after] = [words[i], words[i + 1]];
    if (before.blank === null && after.blank === null) continue;
    const cost = surprise(before.backward) + surprise(after.forward);
    if (worst === null || cost > worst.cost) worst = { cost, before: before.text, after: after.text };
  }
  return worst;
}

/** The worst join in words. */
export function verdict(join) {
  if (join === null) return { clash: false, text: "no blank" };
  const [before, after] = [join.before || "start", join.after || "end"];
  const clash = join.cost >= CLASH;
  return { clash, text: clash ? `clash: ${before} | ${after}` : "no clash" };
}
