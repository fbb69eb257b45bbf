// The picture: one of three photographs, none, or one's own by button, drop or paste.
//
// `state.picture` is the name of a photograph, "none", or the base64 of a JPEG. One's own picture is made small before
// it is sent: the model looks at no more than this, and a link can hold it.

import * as api from "./api.js";
import { byId, make } from "./dom.js";

export const PHOTOS = {
  cat: "A ginger cat that looks past the camera",
  coffee: "A cup of coffee with a spoon on a saucer",
  rocket: "A rocket on its launch pad at night",
};
const SHORT_SIDE = 288;
const LONG_SIDE = 576;

const fetched = new Map();

const JPEG = /^\/9j\/[A-Za-z0-9+/]+=*$/; // in base64

export const isPicture = (text) => text === "none" || text in PHOTOS || JPEG.test(text);
export const isOwn = (picture) => picture !== "none" && !(picture in PHOTOS);

/** What the service is sent: base64, or null without a picture. */
export async function pictureData(picture) {
  if (picture === "none") return null;
  if (isOwn(picture)) return picture;
  if (!fetched.has(picture)) fetched.set(picture, api.photo(picture).then(toBase64));
  return fetched.get(picture);
}

/** `choose(picture)` is called with the new one, `fail(text)` where a file is no picture. */
export function startPictures(state, { choose, fail }) {
  const [stage, file, image] = [byId("stage"), byId("own-picture"), byId("picture")];
  let address = null; // of the blob on show

  async function take(blob) {
    if (!blob) return;
    try {
      choose(await toBase64(await shrink(blob)));
    } catch {
      fail("This file is no picture that the browser can read.");
    }
  }

  byId("pictures").addEventListener("change", (event) => {
    if (event.target.name === "picture") choose(event.target.value);
  });
  file.addEventListener("change", () => take(file.files[0]).then(() => (file.value = "")));
  for (const kind of ["dragover", "dragleave", "drop"]) {
    stage.addEventListener(kind, (event) => {
      if (!event.dataTransfer.types.includes("Files")) return; // text may be dropped into the line to type in
      event.preventDefault();
      stage.classList.toggle("over", kind === "dragover");
      if (kind === "drop") take(event.dataTransfer.files[0]);
    });
  }
  document.addEventListener("paste", (event) => take(event.clipboardData?.files[0]));

  function showBytes(data) {
    address = URL.createObjectURL(fromBase64(data));
    image.src = address;
  }

  // While the service is away it has no photographs to give. The bytes come as soon as it is back.
  image.addEventListener("error", async () => {
    const wanted = state.picture;
    if (!(wanted in PHOTOS)) return;
    const data = await pictureData(wanted);
    if (state.picture === wanted) showBytes(data);
  });

  let shown = image.getAttribute("src");
  return function show() {
    const source = isOwn(state.picture) ? state.picture : `static/photos/${state.picture}.jpg`;
    image.hidden = state.picture === "none";
    byId("no-picture").hidden = state.picture !== "none";
    if (!image.hidden && source !== shown) {
      if (address) URL.revokeObjectURL(address);
      address = null;
      if (isOwn(state.picture)) showBytes(state.picture);
      else image.src = source;
      image.alt = PHOTOS[state.picture] ?? "Your picture";
      shown = source;
    }
    for (const radio of document.querySelectorAll("[name=picture]")) radio.checked = radio.value === state.picture;
    byId("own-label").classList.toggle("chosen", isOwn(state.picture));
  };
}

async function shrink(blob) {
  const bitmap = await createImageBitmap(blob);
  const [short, long] = [Math.min(bitmap.width, bitmap.height), Math.max(bitmap.width, bitmap.height)];
  const scale = Math.min(1, SHORT_SIDE / short, LONG_SIDE / long);
  const width = Math.max(1, Math.round(bitmap.width * scale));
  const height = Math.max(1, Math.round(bitmap.height * scale));
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d");
  context.fillStyle = "white"; // behind what is transparent
  context.fillRect(0, 0, width, height);
  context.drawImage(bitmap, 0, 0, width, height);
  return new Promise((resolve) => canvas.toBlob(resolve, "image/jpeg", 0.85));
}

async function toBase64(blob) {
  const bytes = new Uint8Array(await blob.arrayBuffer());
  let text = "";
  for (let i = 0; i < bytes.length; i += 4096) text += String.fromCharCode(...bytes.subarray(i, i + 4096));
  return btoa(text);
}

function fromBase64(text) {
  return new Blob([Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0))], { type: "image/jpeg" });
}
