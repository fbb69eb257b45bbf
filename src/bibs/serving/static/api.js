// Asking the service. This module alone knows addresses, statuses and keys.

/** The service has said in words what is wrong with a request. */
export class Refused extends Error {}

const FIRST_WAIT = 500; // milliseconds, doubled with each attempt
const LONGEST_WAIT = 4000;

let tell = () => {};
let askForKey = async () => null;
// One promise each for all requests that wait: while the service is away, and for a key.
let comeback = null;
let keyGiven = null;

/** `status(kind, text)` is told how things stand: live, busy or away. `key()` asks the user for an API key. */
export function listen(status, key) {
  [tell, askForKey] = [status, key];
}

export const fill = async (request, signal) => read(await ask("v1/fill", { body: request, signal }));
export const methods = async () => read(await ask("v1/methods"));
export const models = async () => read(await ask("v1/models"));
export const photo = async (name) => (await ask(`static/photos/${name}.jpg`)).blob();

/** The response of the service; where it is away or busy, the request is sent again until it is answered. */
async function ask(path, { body, signal } = {}) {
  for (;;) {
    const key = sessionStorage.getItem("bibs-key");
    const response = await send(path, body, signal, key);
    if (response === null || response.status === 502) await waitForService(signal);
    else if (response.status === 503) await waitInLine(response, signal);
    else if (response.status === 401) await waitForKey(key);
    else return response;
  }
}

async function send(path, body, signal, key = null) {
  const headers = { "content-type": "application/json" };
  if (key) headers.authorization = `Bearer ${key}`;
  const given = body === undefined ? {} : { method: "POST", body: JSON.stringify(body) };
  try {
    return await fetch(path, { headers, signal, ...given });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    return null; // no service at the other end
  }
}

async function read(response) {
  let answer = null;
  try {
    answer = await response.json();
  } catch {
    throw new Refused(`the service sent no answer that can be read (status ${response.status})`);
  }
  if (!response.ok) throw new Refused(answer.error ?? `the service refused (status ${response.status})`);
  tell("live", "live");
  return answer;
}

function waitForService(signal) {
  comeback ??= pollUntilReady().finally(() => (comeback = null));
  return Promise.race([comeback, whenAborted(signal)]);
}

async function pollUntilReady() {
  for (let wait = FIRST_WAIT; ; wait = Math.min(2 * wait, LONGEST_WAIT)) {
    tell("away", "The service is away. Trying again…");
    await sleep(wait);
    const response = await send("readyz");
    if (response?.ok) return;
  }
}

async function waitInLine(response, signal) {
  tell("busy", "The service is busy. Waiting for a turn…");
  const seconds = Number(response.headers.get("retry-after")) || 1;
  await Promise.race([sleep(1000 * Math.min(seconds, 10)), whenAborted(signal)]);
}

async function waitForKey(refused) {
  if (sessionStorage.getItem("bibs-key") !== refused) return; // another has been given since
  keyGiven ??= askForKey().finally(() => (keyGiven = null));
  const key = await keyGiven;
  if (!key) throw new Refused("this service wants an API key");
  sessionStorage.setItem("bibs-key", key);
}

const sleep = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));

function whenAborted(signal) {
  return new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason), { once: true }));
}
