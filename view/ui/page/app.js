// The page: selects the view, updates the URL, and handles downloads.
import { h, put, state, plural, time, clock, ago, clean } from './dom.js';
import { embedded } from './session.js';
import { store, connect, lacks, listen } from './store.js';
import * as map from './map.js';
import * as matrix from './matrix.js';
import * as findings from './findings.js';
import * as change from './change.js';
import * as trace from './trace.js';
import * as node from './node.js';

const views = { map, matrix, findings, change, trace, node };
const titles = { map: 'Map', matrix: 'Matrix', findings: 'Findings', change: 'Change', trace: 'Trace', node: 'Node' };
const byId = (id) => document.getElementById(id);

const there = () => Object.keys(views).filter((name) => !lacks(name));

/** Returns the view and its settings from the fragment of the URL, such as #/map?q=fra. */
export function where() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { view: views[path] && !lacks(path) ? path : there()[0], query: new URLSearchParams(query) };
}

export function link(view, settings = {}) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, v]) => v !== '' && v !== undefined && v !== null));
  return `#/${view}${query.size ? `?${query}` : ''}`;
}

/** Changes settings of the current view. Quiet changes add no entry to the browser's history. */
export function set(settings, quiet = false) {
  const at = where();
  for (const [name, value] of Object.entries(settings)) {
    if (value === '' || value === null || value === undefined) at.query.delete(name);
    else at.query.set(name, value);
  }
  const target = link(at.view, Object.fromEntries(at.query));
  if (quiet) { history.replaceState(null, '', target); show(); } else location.hash = target;
}

const page = { set, link, where };
/** Returns the title of the tab with the number of problems. */
const heading = (view) => `${store.head?.problems?.length ? `(${store.head.problems.length}) ` : ''}${titles[view]} - ${store.head?.clusterset || 'Hawser'}`;

let shown = null; // {name, view, close}

function show() {
  const at = where();
  for (const a of byId('tabs').children) {
    if (a.dataset.view === at.view) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  document.title = clean(heading(at.view));
  if (shown?.name === at.view) { shown.view.update(at.query); return; }
  shown?.view.close?.();
  byId('main').replaceChildren();
  shown = { name: at.view, view: views[at.view].open(byId('main'), at.query, page) };
}

const LINES = 3; // of the headline

/** Returns the link of a line of the headline, to the object that it names. */
function target(p) {
  if (p.link) return link('map', { sel: `link:${p.link.join('/')}` });
  if (p.node && p.cluster && !lacks('node') && store.clusters.get(p.cluster)?.nodes?.some((n) => n.name === p.node)) return link('node', { cluster: p.cluster, node: p.node });
  if (p.cluster && store.clusters.has(p.cluster)) return link('map', { sel: `cluster:${p.cluster}` });
  return link('findings');
}

const since = (t) => (t ? [` since ${clock(t)} (`, h('time', { 'aria-live': 'off', datetime: time(t), 'data-age': 'yes' }, ago(t)), ')'] : '');

const headline = (p) => h('p', { class: `problem ${p.severity}` }, h('a', { href: target(p) }, p.subject), p.text ? ` ${p.text}` : '', since(p.since), p.note ? `: ${p.note}` : '', p.detail ? h('small', {}, p.detail) : '');

let headlineKey = '';

/** Shows the problems as text with links. A page that is out of date is the first problem. */
function headlines(lost) {
  const { head } = store, problems = head?.problems ?? [];
  const key = JSON.stringify([lost && store.heard, problems, head?.summary, [...store.clusters.keys()].length]);
  if (key !== headlineKey) {
    headlineKey = key;
    const lines = problems.slice(0, LINES).map(headline), more = problems.length - LINES;
    if (more > 0) lines.push(h('p', { class: 'problem' }, h('a', { href: link('findings') }, `and ${plural(more, 'more problem')}`)));
    if (lost) lines.unshift(h('p', { class: 'problem error' }, 'hawser ui does not answer', since(store.heard), ': all of this page is as old as that'));
    if (!lines.length && head?.live && head.summary) lines.push(h('p', { class: 'well' }, state('up'), ` No problem reported: ${head.summary}.`));
    byId('headline').hidden = !lines.length;
    byId('headline').className = lost || problems.some((p) => p.severity === 'error') ? 'error' : problems.length ? 'warning' : '';
    put(byId('headline'), lines);
  }
  for (const t of byId('headline').querySelectorAll('[data-age]')) {
    const text = ago(t.getAttribute('datetime'));
    if (t.textContent !== text) t.textContent = text;
  }
}

function status() {
  const { head } = store;
  const lost = !embedded && (store.lost || Date.now() - store.heard > 3000);
  const heard = byId('heard');
  const text = lost ? 'no connection' : embedded ? time(head.at) : head.live ? `live ${clock(head.at)}` : 'no agent is asked';
  if (heard.textContent !== text) heard.textContent = text;
  heard.classList.toggle('lost', lost);
  document.body.classList.toggle('old', lost);
  headlines(lost);
  const trouble = byId('trouble'), problem = clean(store.refusal || head?.error || '');
  trouble.hidden = !problem;
  if (trouble.textContent !== problem) trouble.textContent = problem;
  byId('clusterset').textContent = clean(head?.clusterset || 'Hawser');
  const sources = clean((head?.sources ?? []).join(' · '));
  if (byId('sources').textContent !== sources) byId('sources').textContent = byId('sources').title = sources;
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

byId('save-json').addEventListener('click', () => {
  save(`${store.head?.clusterset || 'hawser'}-${shown.name}.json`, 'application/json', `${JSON.stringify(shown.view.json(), null, 2)}\n`);
});
byId('save-svg').addEventListener('click', () => {
  const picture = shown.view.svg();
  if (!picture) return;
  const copy = picture.cloneNode(true);
  const css = [...byId('picture-style').sheet.cssRules].map((r) => r.cssText).join('\n');
  const style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
  style.textContent = css;
  copy.prepend(style);
  const box = (copy.getAttribute('viewBox') || '0 0 800 600').split(' ');
  copy.setAttribute('width', box[2]);
  copy.setAttribute('height', box[3]);
  save(`${store.head?.clusterset || 'hawser'}-${shown.name}.svg`, 'image/svg+xml', new XMLSerializer().serializeToString(copy));
});
/** Fills the printed page with all views. In a file all data is available at once, so beforeprint is early enough. */
async function paper() {
  const { head } = store;
  const about = h('p', {}, `${time(head.at)}, by hawser ${head.version}. ${(head.sources ?? []).join('; ')}${head.live || lacks('map') ? '' : '. No agent was asked.'}`);
  const all = await Promise.all(there().map((name) => views[name].printed?.(page)));
  byId('paper').replaceChildren(h('h1', {}, head.clusterset ? `Clusterset ${head.clusterset}` : 'Hawser'), about, ...all.flat(Infinity).filter(Boolean));
}
addEventListener('beforeprint', () => { if (embedded) paper(); });
addEventListener('afterprint', () => byId('paper').replaceChildren());
byId('print').addEventListener('click', async () => { await paper(); print(); });
byId('skip').addEventListener('click', () => byId('main').focus());

function tabs() {
  const names = there();
  if (byId('tabs').children.length === names.length) return;
  byId('tabs').replaceChildren(...names.map((name) => h('a', { href: link(name), 'data-view': name }, titles[name])));
}
addEventListener('hashchange', show);
document.addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || e.target.matches('input, select, textarea')) return;
  const at = Number(e.key);
  if (at >= 1 && at <= there().length) location.hash = link(there()[at - 1]);
  if (e.key === '/') { const find = document.querySelector('input[type=search]'); if (find) { find.focus(); e.preventDefault(); } }
});

listen((change) => {
  status();
  if (!store.head) return; // nothing to show yet
  tabs();
  if (!shown) { show(); return; }
  shown.view.changed?.(change);
  document.title = clean(heading(shown.name));
});
setInterval(() => { if (store.heard) status(); }, 1000);
connect();
