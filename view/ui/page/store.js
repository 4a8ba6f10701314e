// The known state of the clusterset, updated by the server's events.

import { embedded, request, start } from './session.js';

export const store = { head: null, clusters: new Map(), links: new Map(), heard: 0, lost: false, refusal: '' };

export const linkKey = (l) => `${l.between[0]}/${l.between[1]}`;

/** Reports whether this page does not show a view, or a part of the trace view: explain, follow. */
export const lacks = (what) => (store.head?.hiddenViews ?? []).includes(what);

/** Reports whether responses of the server may change, so that the page must poll. */
export const polling = () => Boolean(store.head?.live) && !embedded;

const listeners = new Set();

/** Calls what after each change, with {whole, clusters, links, gone}. Returns a function that ends this. */
export function listen(what) {
  listeners.add(what);
  return () => listeners.delete(what);
}

function tell(change) { for (const l of [...listeners]) l(change); }

function take(message, whole) {
  const { clusters = [], links = [], gone = [], ...head } = message;
  store.head = head;
  if (whole) { store.clusters.clear(); store.links.clear(); }
  for (const c of clusters) store.clusters.set(c.name, c);
  for (const l of links) store.links.set(linkKey(l), l);
  for (const g of gone) store.links.delete(`${g[0]}/${g[1]}`);
  store.heard = Date.now();
  tell({ whole, clusters: clusters.map((c) => c.name), links: links.map(linkKey), gone: gone.map((g) => `${g[0]}/${g[1]}`) });
}

const handlers = {
  whole: (data) => take(data, true),
  change: (data) => take(data, false),
  beat: (data) => { store.heard = Date.now(); store.head.at = data.at; tell({ clusters: [], links: [], gone: [] }); },
};

/** Handles one server-sent event: a line with its name and one with its data. */
function handle(event) {
  const lines = event.split('\n');
  const field = (name) => lines.find((l) => l.startsWith(`${name}: `))?.slice(name.length + 2);
  try { handlers[field('event')]?.(JSON.parse(field('data'))); } catch (err) { reportError(err); } // the stream continues
}

/** Reads events until the stream ends. EventSource cannot send the header with the token. */
async function readEvents() {
  const response = await request('api/events');
  if (!response.ok) {
    store.lost = response.status < 500; // a retry does not help if the token is wrong
    if (store.lost) store.refusal = (await response.text()).trim();
    return;
  }
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  for (let text = ''; ;) {
    const { done, value } = await reader.read();
    if (done) return;
    text += value;
    for (let end; (end = text.indexOf('\n\n')) >= 0; text = text.slice(end + 2)) handle(text.slice(0, end));
  }
}

const retryInterval = 500; // ms

/** Reads events. After a lost connection it connects again, until the server refuses the token. */
export async function connect() {
  if (embedded) { take(embedded, true); return; }
  await start();
  while (!store.lost) {
    try { await readEvents(); } catch { /* the connection broke: try again */ }
    tell({ clusters: [], links: [], gone: [] });
    if (!store.lost) await new Promise((resolve) => setTimeout(resolve, retryInterval));
  }
}
