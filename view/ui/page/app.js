// The page: which view is shown, what the URL says, downloads.
import { h } from './dom.js';
import { store, connect, lacks, listen } from './store.js';
import * as map from './map.js';
import * as matrix from './matrix.js';
import * as change from './change.js';
import * as trace from './trace.js';
import * as node from './node.js';

const views = { map, matrix, change, trace, node };
const titles = { map: 'Map', matrix: 'Matrix', change: 'Change', trace: 'Trace', node: 'Node' };
const byId = (id) => document.getElementById(id);

/** The view and its settings, as the part of the URL behind # has them: #/map?q=fra */
export function where() {
  const [path, query = ''] = location.hash.replace(/^#\/?/, '').split('?');
  return { view: views[path] && !lacks(path) ? path : 'map', query: new URLSearchParams(query) };
}

export function link(view, settings = {}) {
  const query = new URLSearchParams(Object.entries(settings).filter(([, v]) => v !== '' && v !== undefined && v !== null));
  return `#/${view}${query.size ? `?${query}` : ''}`;
}

/** Changes settings of the view that is shown; back in the browser undoes what is not quiet. */
export function set(settings, quiet = false) {
  const at = where();
  for (const [name, value] of Object.entries(settings)) {
    if (value === '' || value === null || value === undefined) at.query.delete(name);
    else at.query.set(name, value);
  }
  const target = link(at.view, Object.fromEntries(at.query));
  if (quiet) { history.replaceState(null, '', target); show(); } else location.hash = target;
}

let shown = null; // {name, view, close}

function show() {
  const at = where();
  for (const a of byId('tabs').children) {
    if (a.dataset.view === at.view) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  document.title = `${titles[at.view]} - ${store.head?.clusterset || 'Hawser'}`;
  if (shown?.name === at.view) { shown.view.update(at.query); return; }
  shown?.view.close?.();
  byId('main').replaceChildren();
  shown = { name: at.view, view: views[at.view].open(byId('main'), at.query, { set, link, where }) };
}

function status() {
  const silent = store.head?.silent?.length ?? 0;
  const age = Math.round((Date.now() - store.heard) / 1000);
  const lost = store.lost || age > 4;
  const heard = byId('heard');
  const text = lost ? 'hawser ui does not answer' : !store.head.live ? `from ${store.head.file}` : `${store.head.of ? `live, as ${store.head.of} reports` : 'live'}${silent ? `, ${silent} silent` : ''}`;
  if (heard.textContent !== text) heard.textContent = text;
  heard.title = (store.head?.silent ?? []).map((u) => `${u.who}: ${u.error}`).join('\n');
  heard.classList.toggle('lost', lost);
  const trouble = byId('trouble'), problem = store.refusal || store.head?.error || '';
  trouble.hidden = !problem;
  if (trouble.textContent !== problem) trouble.textContent = problem;
  byId('clusterset').textContent = store.head?.clusterset || 'Hawser';
}

function save(name, type, text) {
  const url = URL.createObjectURL(new Blob([text], { type }));
  h('a', { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

byId('save-json').addEventListener('click', () => {
  save(`${store.head?.clusterset || 'hawser'}-${shown.name}.json`, 'application/json', `${JSON.stringify(shown.view.json(), null, 2)}\n`);
});
byId('save-svg').addEventListener('click', async () => {
  const picture = shown.view.svg();
  if (!picture) return;
  const copy = picture.cloneNode(true);
  const css = await (await fetch('picture.css')).text();
  const style = document.createElementNS('http://www.w3.org/2000/svg', 'style');
  style.textContent = css;
  copy.prepend(style);
  const box = (copy.getAttribute('viewBox') || '0 0 800 600').split(' ');
  copy.setAttribute('width', box[2]);
  copy.setAttribute('height', box[3]);
  save(`${store.head?.clusterset || 'hawser'}-${shown.name}.svg`, 'image/svg+xml', new XMLSerializer().serializeToString(copy));
});
byId('skip').addEventListener('click', () => byId('main').focus());

const there = () => Object.keys(views).filter((name) => !lacks(name));

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
  document.title = `${titles[shown.name]} - ${store.head.clusterset || 'Hawser'}`;
});
setInterval(() => { if (store.heard) status(); }, 1000);
connect();
