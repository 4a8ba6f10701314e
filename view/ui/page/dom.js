// Elements. Whatever comes from a cluster, a repository or a person is a text node or an
// attribute here, and never HTML.

import { request } from './session.js';

const SVG = 'http://www.w3.org/2000/svg';

function fill(el, attrs, children) {
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === 'function') el.addEventListener(name, value);
    else el.setAttribute(name, value === true ? '' : String(value));
  }
  el.append(...children.flat(Infinity).filter((c) => c !== undefined && c !== null && c !== false).map((c) => (c instanceof Node ? c : String(c))));
  return el;
}

/** An element of HTML: attributes, handlers of events by their names, children. */
export const h = (tag, attrs, ...children) => fill(document.createElement(tag), attrs, children);

/** An element of SVG. */
export const s = (tag, attrs, ...children) => fill(document.createElementNS(SVG, tag), attrs, children);

/** Puts children, which may be lists of them, in the place of what was in an element. */
export function put(el, ...children) { el.replaceChildren(); return fill(el, {}, children); }

/** A table: heads, and rows of cells, which are texts or elements. */
export function table(caption, heads, rows) {
  return h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': caption }, h('table', {},
    h('thead', {}, h('tr', {}, heads.map((t) => h('th', { scope: 'col' }, t)))),
    h('tbody', {}, rows.map((r) => h('tr', {}, r.map((c) => h('td', {}, c)))))));
}

export const state = (of) => h('span', { class: `state ${of || ''}`, role: 'img', 'aria-label': of || 'no state' });

export const plural = (n, thing) => (n === 1 ? `1 ${thing}` : `${n} ${thing}s`);

/** Microseconds as people say them. */
export const millis = (us) => (us > 0 ? `${(us / 1000).toFixed(us < 10000 ? 1 : 0)} ms` : '');

/** Bytes a second as people say them. */
export function rate(n) {
  if (!n) return '0 B/s';
  const units = ['B/s', 'kB/s', 'MB/s', 'GB/s'];
  let i = 0;
  while (n >= 1000 && i < units.length - 1) { n /= 1000; i++; }
  return `${n >= 100 || i === 0 ? Math.round(n) : n.toFixed(1)} ${units[i]}`;
}

export const percent = (f) => `${(f * 100).toFixed(f > 0 && f < 0.1 ? 1 : 0)}%`;

export const cut = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** What the server answers, or an error with its reason. */
export async function ask(path, options) {
  const response = await request(path, options);
  const value = await response.json().catch(() => ({ error: `the answer is no JSON (${response.status})` }));
  if (!response.ok) throw new Error(value.error || `hawser ui answered ${response.status}`);
  return value;
}

export const failed = (err) => h('p', { class: 'bad', role: 'alert' }, err.message);

export const empty = (...text) => h('p', { class: 'empty' }, ...text);
