// A sentence with blanks, as a list of tokens: {text} is a word as typed, {blank, before, after, word} a blank.
//
// `blank` is the mark as typed: `_` one word, `___` or `___{2,6}` a blank of unknown length. `before` and `after` are
// punctuation that touches it; `word` is what stood there before a click made it a blank, where that is known.

const CHUNK = /(?:\{[^}]*\}|\S)+/g;
const BLANK = /^([^\p{L}\p{N}\p{M}_\\]*)(_|_{3,}(?:\{[^}]*\})?)([^\p{L}\p{N}\p{M}_]*)$/u;
const WORD = /^([^\p{L}\p{N}\p{M}]*)(.*?)([^\p{L}\p{N}\p{M}]*)$/u;

export function parse(text) {
  return (text.match(CHUNK) ?? []).map((chunk) => {
    const found = chunk.match(BLANK);
    return found ? { blank: found[2], before: found[1], after: found[3], word: null } : { text: chunk };
  });
}

export const isSlot = (token) => token.blank === "_";
export const holdsWord = (token) => Boolean(token.blank) || /[\p{L}\p{N}]/u.test(token.text);

const written = (token) => (token.blank ? token.before + token.blank + token.after : token.text);

/** The template that the service reads. */
export const format = (tokens) => tokens.map(written).join(" ");

/** For each token the number of its blank, as the service counts them (a run of `_` is one blank), or null. */
export function numberBlanks(tokens) {
  let count = 0;
  return tokens.map((token, index) => {
    if (!token.blank) return null;
    const previous = tokens[index - 1];
    const goesOn = previous && isSlot(previous) && isSlot(token) && !previous.after && !token.before;
    return goesOn ? count - 1 : count++;
  });
}

/** A click: a word becomes a blank, a blank becomes a word again. `spans` are the words found for each blank. */
export function toggle(tokens, index, spans) {
  const token = tokens[index];
  if (!token.blank) {
    const [, before, word, after] = token.text.match(WORD);
    return tokens.with(index, { blank: "_", before, after, word });
  }
  const numbers = numberBlanks(tokens);
  const words = wordsOf(spans[numbers[index]]);
  if (isSlot(token)) {
    const word = token.word ?? words[index - numbers.indexOf(numbers[index])];
    return word ? tokens.with(index, { text: token.before + word + token.after }) : tokens;
  }
  const given = token.word ? [token.word] : words;
  return given.length ? tokens.toSpliced(index, 1, ...parse(token.before + given.join(" ") + token.after)) : tokens;
}

/** Put a word into a blank for good; the other words of the blank are searched again, and their number is kept. */
export function fix(tokens, blank, offset, word, span) {
  const index = numberBlanks(tokens).indexOf(blank);
  const run = isSlot(tokens[index]) ? tokens : tighten(tokens, index, span);
  const token = run[index + offset];
  return run.with(index + offset, { text: token.before + word + token.after });
}

/** Every run of `_` as one blank of unknown length. */
export function loosen(tokens) {
  const numbers = numberBlanks(tokens);
  return tokens.flatMap((token, index) => {
    if (!token.blank || !isSlot(token)) return [token];
    if (numbers[index] === numbers[index - 1]) return [];
    const run = tokens.filter((_, other) => numbers[other] === numbers[index]);
    const words = run.map((each) => each.word);
    const word = words.every(Boolean) ? words.join(" ") : null;
    return [{ blank: "___", before: token.before, after: run.at(-1).after, word }];
  });
}

/** Blanks of unknown length as long as what was found for them. */
export function tightenAll(tokens, spans) {
  const numbers = numberBlanks(tokens);
  for (let index = tokens.length - 1; index >= 0; index--) {
    if (tokens[index].blank && !isSlot(tokens[index])) tokens = tighten(tokens, index, spans[numbers[index]]);
  }
  return tokens;
}

function tighten(tokens, index, span) {
  const { before, after, word } = tokens[index];
  const count = Math.max(1, wordsOf(span).length);
  const known = word ? wordsOf(word) : [];
  const run = Array.from({ length: count }, (_, place) => ({
    blank: "_",
    before: place === 0 ? before : "",
    after: place === count - 1 ? after : "",
    word: known.length === count ? known[place] : null,
  }));
  return tokens.toSpliced(index, 1, ...run);
}

const wordsOf = (span) => (span ? span.split(" ") : []);
