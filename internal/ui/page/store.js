// What is known of the clusterset, kept up to date by the server's events.

export const store = { head: null, land: '', clusters: new Map(), links: new Map(), heard: 0, lost: false };

export const linkKey = (l) => `${l.between[0]}/${l.between[1]}`;

/** Says that this page cannot show something: change, follow (of packets), recent. A page in a cluster asks no agent. */
export const lacks = (what) => (store.head?.without ?? []).includes(what);

const listeners = new Set();

/** Calls back with what changed: {whole, clusters, links, gone}. Gives what ends that. */
export function listen(what) {
  listeners.add(what);
  return () => listeners.delete(what);
}

function tell(change) { for (const l of [...listeners]) l(change); }

function take(message, whole) {
  const { clusters = [], links = [], gone = [], land, ...head } = message;
  store.head = head;
  if (whole) { store.land = land ?? ''; store.clusters.clear(); store.links.clear(); }
  for (const c of clusters) store.clusters.set(c.name, c);
  for (const l of links) store.links.set(linkKey(l), l);
  for (const g of gone) store.links.delete(`${g[0]}/${g[1]}`);
  store.heard = Date.now();
  tell({ whole, clusters: clusters.map((c) => c.name), links: links.map(linkKey), gone: gone.map((g) => `${g[0]}/${g[1]}`) });
}

/** Begins to hear. A browser comes back by itself when the stream breaks. */
export function connect() {
  const events = new EventSource('api/events');
  events.addEventListener('whole', (e) => take(JSON.parse(e.data), true));
  events.addEventListener('change', (e) => take(JSON.parse(e.data), false));
  events.addEventListener('beat', (e) => { store.heard = Date.now(); store.head.at = JSON.parse(e.data).at; tell({ clusters: [], links: [], gone: [] }); });
  // A server that was started anew has another token: the stream ends for good then.
  events.addEventListener('error', () => { store.lost = events.readyState === EventSource.CLOSED; tell({ clusters: [], links: [], gone: [] }); });
}
