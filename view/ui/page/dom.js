// DOM elements. Text from clusters, repositories and users becomes text nodes or attributes, never
// HTML.

import { embedded, request } from './session.js';

const SVG = 'http://www.w3.org/2000/svg';

/** Removes characters that would hide other characters or change their order. */
export const clean = (text) => String(text).replace(/[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu, ' ');

function fill(el, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') el.addEventListener(name, value);
    else el.setAttribute(name, value === true ? '' : clean(value));
  }
  el.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false).map((c) => (c instanceof Node ? c : clean(c))));
  return el;
}

/** Creates an HTML element with attributes, event handlers by event name, and children. */
export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);

/** Creates an SVG element. */
export const s = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);

/** Replaces the children of an element. Children may be nested lists. */
export function put(el, ...children) { el.replaceChildren(); return fill(el, {}, children); }

// Do not break names, times and numbers across lines.
const whole = (c) => typeof c === 'string' && c.length <= 44 && (!/\s/.test(c) || /^[\d.]+ \S+$/.test(c));

/** Creates a table from headings and rows of cells, which are texts or elements. */
export function table(caption, heads, rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, h('table', {},
    h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, rows.map((r) => h('tr', {}, r.map((c) => h('td', { class: whole(c) && 'key' }, c)))))));
}

export const state = (of) => h('span', { class: `state ${of || ''}`, role: 'img', 'aria-label': of || 'no state' });

export const plural = (n, thing) => (n === 1 ? `1 ${thing}` : `${n} ${thing}s`);

/** Formats microseconds for users. */
export const millis = (us) => (us > 0 ? `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms` : '');

/** Formats a time like the commands: RFC 3339, UTC, whole seconds. */
export const time = (t) => (Number.isNaN(new Date(t ?? NaN).getTime()) ? String(t ?? '') : new Date(t).toISOString().replace(/\.\d+Z$/, 'Z'));

/** Formats a time; without the date if it is today. */
export const clock = (t) => (time(t).slice(0, 10) === time(Date.now()).slice(0, 10) ? time(t).slice(11) : time(t));

/** Formats the age of a time. */
export function ago(t) {
  const seconds = Math.max(0, Math.round((Date.now() - Date.parse(t)) / 1000));
  if (seconds < 120) return `${seconds} s ago`;
  return seconds < 7200 ? `${Math.round(seconds / 60)} min ago` : seconds < 172800 ? `${Math.round(seconds / 3600)} h ago` : `${Math.round(seconds / 86400)} days ago`;
}

/** Rounds a duration of Go, such as 25.162827ms, for users. */
export function duration(text) {
  const unit = { ns: 1e-6, us: 1e-3, 'µs': 1e-3, ms: 1, s: 1e3, m: 6e4, h: 3.6e6 };
  let ms = 0;
  for (const [, n, u] of String(text).matchAll(/([\d.]+)(ns|us|µs|ms|s|m|h)/g)) ms += n * unit[u];
  if (ms >= 1e4) return `${Math.round(ms / 1e3)} s`;
  return ms >= 1e3 ? `${(ms / 1e3).toFixed(1)} s` : ms >= 9.95 ? `${Math.round(ms)} ms` : ms >= 0.1 ? `${ms.toFixed(1)} ms` : 'less than 0.1 ms';
}

/** Creates a position in a file: the file's name, with the whole path as tooltip. */
export const place = (text) => h('code', { class: 'place', title: text }, String(text ?? '').split('/').pop());

/** Creates a text, such as a key, that is abbreviated until the user opens it. */
export function brief(text, most = 80) {
  const word = Math.max(...String(text).split(/\s/).map((w) => w.length));
  if (text.length <= most && word <= 28) return h('code', {}, text);
  const short = word > 28 ? `${text.slice(0, 16)}…` : cut(text, most);
  const code = h('code', {}, short);
  return h('button', { class: 'brief', type: 'button', title: text, 'aria-expanded': 'false', click: (e) => {
    const open = e.currentTarget.getAttribute('aria-expanded') !== 'true';
    e.currentTarget.setAttribute('aria-expanded', open);
    code.textContent = clean(open ? text : short);
  } }, code);
}

/** Formats bytes per second for users. */
export function rate(n) {
  if (!n) return '0 B/s';
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const percent = (f) => `${(f * 100).toFixed(f > 0 && f < 0.1 ? 1 : 0)}%`;

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** Returns a part of a file's snapshot by its path in the API of hawser ui. */
function part(path) {
  const [name, query = ''] = path.split('?'), q = new URLSearchParams(query);
  const { findings, versions, verified, matrix, paths, nodes } = embedded;
  switch (name) {
    case 'api/findings': return { findings, versions, verified };
    case 'api/matrix': return matrix;
    case 'api/cluster': if (paths[q.get('name')]) return { paths: paths[q.get('name')] }; break;
    case 'api/node': { const of = nodes.find((n) => n.cluster === q.get('cluster') && n.node === q.get('node')); if (of) return of; }
  }
  throw new Error('this file does not have it: hawser ui shows it');
}

/** Returns the response of the server, or throws an error with its text. */
export async function ask(path, options) {
  if (embedded) return part(path);
  const response = await request(path, options);
  const value = await response.json().catch(() => ({ error: `the answer is no JSON (${response.status})` }));
  if (!response.ok) throw new Error(value.error || `hawser ui answered ${response.status}`);
  return value;
}

/** Creates the elements of a drawing. The server computes its geometry. */
export function drawing(d) {
  const tone = (x, ...more) => [...more, x.tone].filter(Boolean).join(' ');
  const about = (x) => x.about && s('title', {}, x.about);
  const tip = (l) => {
    const [dx, dy] = [Math.sign(l.x2 - l.x1), Math.sign(l.y2 - l.y1)], at = (side) => `${l.x2 - 9 * dx - 4.5 * side * dy},${l.y2 - 9 * dy + 4.5 * side * dx}`;
    return l.arrow && s('polygon', { class: tone(l, 'tip'), points: `${l.x2},${l.y2} ${at(1)} ${at(-1)}` });
  };
  return s('svg', { xmlns: SVG, class: 'picture drawing', viewBox: `0 0 ${d.width} ${d.height}`, width: d.width, height: d.height, role: 'img', 'aria-label': d.about },
    (d.bands ?? []).map((b) => s('rect', { class: 'band', x: b.x, y: b.y, width: b.w, height: b.h, rx: 8 })),
    (d.lines ?? []).map((l) => [s('line', { class: tone(l, 'link'), x1: l.x1, y1: l.y1, x2: l.x2, y2: l.y2 }, about(l)), tip(l)]),
    (d.boxes ?? []).map((b) => s('rect', { class: tone(b, 'box'), x: b.x, y: b.y, width: b.w, height: b.h, rx: 8 }, about(b))),
    (d.texts ?? []).map((t) => s('text', { class: tone(t, t.faint && 'faint', t.bold && 'bold', { middle: 'middle', end: 'end' }[t.anchor], `size${t.size}`), x: t.x, y: t.y }, t.text)));
}

export const failed = (err) => h('p', { class: 'bad', role: 'alert' }, err.message);

export const empty = (...text) => h('p', { class: 'empty' }, ...text);
