/** Requests to the dashboard's own server, and its streams of events. */

/** What the server says went wrong. */
export class Failure extends Error {
  /** @param {number} status @param {{code: string, what: string, at: string, fix: string, all?: any[]}} error */
  constructor(status, error) {
    super(error.what);
    this.status = status;
    this.error = error;
  }
}

const LOST = { code: "ND-91-21", what: "the dashboard does not answer", at: location.host, fix: "Start it again with `netdyno web`" };

/** Where the key of the log-in is kept: for pages of this very port. */
const KEY = "netdyno-key";

/** Log in with a token. @param {string} token */
export async function logIn(token) {
  const found = await post("/api/login", { token });
  localStorage.setItem(KEY, found.key);
  return found;
}

/** Log out. */
export async function logOut() {
  await post("/api/logout").catch(() => undefined);
  localStorage.removeItem(KEY);
}

/** Told when another page of this browser has logged in or out. @param {() => void} then */
export const onLogIn = (then) => addEventListener("storage", (event) => event.key === KEY && then());

/** @param {string} method @param {string} path @param {any} [body] */
async function request(method, path, body) {
  let answer;
  try {
    answer = await fetch(path, {
      method,
      credentials: "same-origin",
      headers: method === "GET" ? {} : { "Content-Type": "application/json", "X-Netdyno-Key": localStorage.getItem(KEY) ?? "" },
      body: method === "GET" || method === "DELETE" ? undefined : JSON.stringify(body ?? {}),
    });
  } catch {
    throw new Failure(0, LOST);
  }
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Failure(answer.status, found.error ?? { code: `HTTP ${answer.status}`, what: answer.statusText, at: path, fix: "" });
  return found;
}

export const get = (/** @type {string} */ path) => request("GET", path);
export const post = (/** @type {string} */ path, /** @type {any} */ body) => request("POST", path, body);
export const remove = (/** @type {string} */ path) => request("DELETE", path);

/** Milliseconds without a word after which a stream counts as lost, and between two looks; the server says within 15 s that it is there. */
const SILENT = 35_000;
const LOOK = 5_000;

/**
 * Follow a stream while the page can be seen; a page that comes back gets everything again.
 * @param {string} path
 * @param {Record<string, (data: any) => void>} handlers by the name of the event; `lost` when the connection is
 */
export function follow(path, handlers) {
  /** @type {EventSource | null} */
  let source = null;
  let ended = false;
  let heard = Date.now();
  const close = () => {
    source?.close();
    source = null;
  };
  const open = () => {
    if (source || ended) return;
    source = new EventSource(path);
    heard = Date.now();
    for (const name of ["whole", "news", "still", "over"]) {
      source.addEventListener(name, (event) => {
        heard = Date.now();
        if (name === "over") stop();
        handlers[name]?.(JSON.parse(event.data));
      });
    }
    source.addEventListener("error", () => handlers.lost?.({ closed: source?.readyState === EventSource.CLOSED }));
    source.addEventListener("open", () => handlers.open?.({}));
  };
  const seen = () => (document.hidden ? close() : open());
  // a browser gives up a stream for good that was answered with an error, and does not notice one that is silent
  const watching = setInterval(() => {
    const silent = source && Date.now() - heard > SILENT;
    if (document.hidden || (source?.readyState !== EventSource.CLOSED && !silent)) return;
    close();
    if (silent) handlers.lost?.({});
    open();
  }, LOOK);
  const stop = () => {
    ended = true;
    clearInterval(watching);
    close();
    document.removeEventListener("visibilitychange", seen);
  };
  document.addEventListener("visibilitychange", seen);
  seen();
  return stop;
}

/**
 * Follow what a system shows; each message has all of it, or what is wrong.
 * @param {string} path @param {(data: any) => void} take @param {() => void} expired when nobody is logged in any more
 */
export function watch(path, take, expired) {
  const lost = () => request("GET", "/api/about").catch((e) => (e.status === 401 ? expired() : take(e)));
  return follow(path, { whole: take, news: take, lost });
}
