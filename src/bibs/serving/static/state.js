// What the user has chosen, its defaults, and how it is written into a link.

import { isPicture } from "./picture.js";
import { format, parse } from "./sentence.js";

export const DEFAULT_OPTIONS = {
  num_beams: 5,
  num_rounds: 4,
  num_return_sequences: 1,
  diversity_penalty: 0,
  start: "both",
};
export const FIRST_METHODS = ["forward", "backward", "bibs"];
const FIRST_TEMPLATE = "A cat sitting _ _ _ _ _ into the camera.";

export function firstState() {
  return {
    tokens: parse(FIRST_TEMPLATE),
    picture: "cat",
    methods: [...FIRST_METHODS],
    options: { ...DEFAULT_OPTIONS },
    must_include: [],
    bad_words: [],
    open: false, // whether the passes are shown
  };
}

/** The part of a link behind `#`; what has its default is left out. */
export function encode(state) {
  const fields = new URLSearchParams();
  const first = firstState();
  const put = (name, value, standard) => value !== standard && fields.set(name, value);
  put("template", format(state.tokens), FIRST_TEMPLATE);
  put("picture", state.picture, first.picture);
  put("methods", state.methods.join(), first.methods.join());
  for (const [name, value] of Object.entries(state.options)) put(name, value, DEFAULT_OPTIONS[name]);
  put("must_include", state.must_include.join(" "), "");
  put("bad_words", state.bad_words.join(" "), "");
  put("passes", state.open ? "open" : "", "");
  return fields.toString();
}

export function decode(hash) {
  const fields = new URLSearchParams(hash.replace(/^#/, ""));
  const state = firstState();
  if (fields.has("template")) state.tokens = parse(fields.get("template"));
  if (isPicture(fields.get("picture") ?? "")) state.picture = fields.get("picture");
  if (fields.get("methods")) state.methods = fields.get("methods").split(",");
  for (const [name, standard] of Object.entries(DEFAULT_OPTIONS)) {
    const value = fields.get(name);
    if (typeof standard === "string" ? value : Number.isFinite(Number(value ?? NaN))) {
      state.options[name] = typeof standard === "string" ? value : Number(value);
    }
  }
  state.must_include = wordsIn(fields.get("must_include") ?? "");
  state.bad_words = wordsIn(fields.get("bad_words") ?? "");
  state.open = fields.get("passes") === "open";
  return state;
}

/** Words as they are typed into a field: apart by spaces or commas. */
export const wordsIn = (text) => [...new Set(text.split(/[\s,]+/).filter(Boolean))];

/** The request for one method, without its picture. */
export function requestFor(state, method) {
  const request = { template: format(state.tokens), method };
  for (const [name, value] of Object.entries(state.options)) {
    if (value !== DEFAULT_OPTIONS[name]) request[name] = value;
  }
  if (state.must_include.length) request.must_include = state.must_include;
  if (state.bad_words.length) request.bad_words = state.bad_words;
  return request;
}
