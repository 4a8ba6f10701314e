// What a change does, and the history of publications.
import { h, s, plural, cut, time, brief, place, ask, failed, empty } from './dom.js';

const ops = { '+': ['+', 'good', 'added'], '~': ['~', 'fair', 'changed'], '-': ['-', 'bad', 'removed'], '±': ['±', 'bad', 'replaced'] };
const op = (o) => ops[o] ?? ops['~'];

export function open(main, query, page) {
  const find = h('input', { type: 'search', 'aria-label': 'Find in the plan', placeholder: 'find ( / )', input: () => page.set({ q: find.value.trim() }, true) });
  const only = h('input', { type: 'checkbox', change: () => page.set({ breaks: only.checked ? 'yes' : '' }) });
  const body = h('div', { class: 'view' });
  const times = h('nav', { class: 'side', 'aria-label': 'Published' });
  const plan = h('section', { 'aria-label': 'Plan' });
  const from = h('select', { 'aria-label': 'Compare from', change: () => page.set({ from: from.value, to: to.value }) });
  const to = h('select', { 'aria-label': 'Compare to', change: () => page.set({ from: from.value, to: to.value }) });
  main.append(h('div', { class: 'bar' }, find, h('label', {}, only, 'only what disrupts'), h('label', {}, 'from', from), h('label', {}, 'to', to)), body);
  body.append(h('div', { class: 'split' }, times, h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Plan' }, plan)));
  let view = {}, past = [], warnings = [], listed = 0, made = null, of = '';

  async function load() {
    try {
      const got = await ask('api/history');
      past = got.publications; warnings = got.warnings ?? []; listed = got.listed;
      timesList();
      picks();
    } catch (err) { times.replaceChildren(h('p', { class: 'faint' }, err.message)); }
  }

  // The publication before each one, with which the list compares it.
  const before = (i) => past[i + 1]?.commit ?? (past[i].changes.startsWith('unknown') ? past[i].commit : 'none');

  // The two ends of the comparison, which may be any two publications.
  function picks() {
    const name = (p) => `${time(p.time)} ${p.commit.slice(0, 7)} ${cut(p.subject, 40)}`;
    const fill = (select, first, last, chosen) => {
      const all = [['', first], ...past.map((p) => [p.commit, name(p)]), ...last];
      if (!all.some(([v]) => v === chosen)) all.push([chosen, `${cut(chosen, 12)}: not listed`]);
      select.replaceChildren(...all.map(([value, text]) => h('option', { value }, text)));
      select.value = chosen;
    };
    fill(from, 'what is published now', [['none', 'nothing']], view.from);
    fill(to, 'the topology as it is now', [], view.to);
  }

  function bars(p, most) {
    const width = (n) => (n ? Math.max(2, (n / most) * 120) : 0);
    let x = 0;
    const bar = (n, c) => { const r = s('rect', { class: c, x, y: 0, width: width(n), height: 6 }); x += width(n); return r; };
    return s('svg', { class: 'picture', width: 124, height: 6, 'aria-hidden': true }, bar(p.add, 'add'), bar(p.change, 'chg'), bar(p.destroy, 'del'));
  }

  function timesList() {
    const most = Math.max(1, ...past.map((p) => p.summary.add + p.summary.change + p.summary.destroy));
    const row = (to, from, title, note, picture) => h('li', {}, h('a', { href: page.link('change', { from, to, q: view.q, breaks: view.breaks }), 'aria-current': view.to === to && view.from === from ? 'true' : null }, title, h('small', {}, note), picture ?? ''));
    times.replaceChildren(h('h2', {}, 'Published'), ...warnings.map((text) => h('p', { class: 'fair note', role: 'alert' }, text)), h('ol', { class: 'times' },
      row('', '', 'The topology as it is now', 'compared with what is published'),
      past.slice(0, listed).map((p, i) => row(p.commit, before(i), cut(p.subject, 70),
        `${time(p.time)}, ${p.author}, ${p.commit.slice(0, 12)}${p.refused ? ', NOT SIGNED' : ''}: ${p.changes}${p.summary.disruptive ? `, ${p.summary.disruptive} disrupt` : ''}`, bars(p.summary, most)))));
  }

  async function compare() {
    const key = `${view.from} ${view.to}`;
    if (key === of) { draw(); return; }
    of = key;
    plan.replaceChildren(h('p', { class: 'faint', role: 'status' }, 'comparing...'));
    try {
      const got = await ask(`api/plan?from=${encodeURIComponent(view.from)}&to=${encodeURIComponent(view.to)}`);
      if (key !== of) return;
      made = got;
      draw();
    } catch (err) { made = null; if (key === of) plan.replaceChildren(failed(err)); of = ''; }
  }

  function draw() {
    if (!made) return;
    const text = (e) => [e.kind, e.key, e.cluster, e.path, e.disruptive, e.note, ...(e.fields ?? []).flatMap((f) => [f.name, f.have, f.want])].join(' ').toLowerCase();
    const list = made.changes.filter((e) => (!view.breaks || e.disruptive) && (!view.q || text(e).includes(view.q.toLowerCase())));
    const end = (name, none) => past.find((p) => p.commit === name)?.commit.slice(0, 12) || name || none;
    const inList = past.findIndex((p) => p.commit === view.to);
    const ownChange = inList >= 0 && before(inList) === view.from || !view.to && !view.from;
    const head = [h('h2', {}, ownChange ? view.to ? `Commit ${view.to.slice(0, 12)}` : 'The topology as it is now' : `From ${end(view.from, 'what is published now')} to ${end(view.to, 'the topology as it is now')}`),
      h('p', {}, h('span', { class: 'good' }, `${made.summary.add} to add`), ', ', h('span', { class: 'fair' }, `${made.summary.change} to change`), ', ', h('span', { class: 'bad' }, `${made.summary.destroy} to remove`), `, ${made.summary.disruptive} disruptive`)];
    if (!made.changes.length) { plan.replaceChildren(...head, empty(view.to ? 'Nothing changed.' : 'Nothing to change: this is what is published.')); return; }
    plan.replaceChildren(...head, h('table', {},
      h('thead', {}, h('tr', {}, ['op', 'what', 'cluster', 'fields', 'topology', 'what breaks'].map((t) => h('th', { scope: 'col' }, t)))),
      h('tbody', {}, list.slice(0, 500).map((e) => {
        const [sign, tone, word] = op(e.op);
        return h('tr', {}, h('td', { class: `${tone} key` }, h('span', { role: 'img', 'aria-label': word }, sign)), h('td', {}, `${e.kind} `, brief(e.key, 60)), h('td', {}, e.cluster || 'all'),
          h('td', {}, (e.fields ?? []).filter((f) => f.have !== f.want).slice(0, 12).map((f) => h('div', {}, `${f.name}: `, f.have ? brief(f.have) : '', f.have && f.want ? ' → ' : '', f.want ? brief(f.want) : ''))),
          h('td', {}, place(e.source || e.path || '')), h('td', { class: e.disruptive ? 'bad' : 'faint' }, e.disruptive || e.note || ''));
      }))), list.length > 500 ? h('p', { class: 'faint' }, `${list.length - 500} more: narrow it with find`) : '', list.length ? '' : empty(`${plural(made.changes.length, 'change')}, none of them like this`));
  }

  function update(q) {
    view = Object.fromEntries(['q', 'from', 'to', 'breaks'].map((n) => [n, q.get(n) ?? '']));
    if (document.activeElement !== find) find.value = view.q;
    only.checked = Boolean(view.breaks);
    timesList();
    picks();
    compare();
  }
  update(query);
  load();
  return {
    update, changed(c) { if (c.whole) { of = ''; load(); compare(); } }, json: () => ({ plan: made, publications: past }),
    svg() {
      if (!past.length) return null;
      const most = Math.max(1, ...past.map((p) => p.summary.add + p.summary.change + p.summary.destroy));
      return s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture', viewBox: `0 0 820 ${past.length * 34 + 50}` }, s('text', { class: 'title', x: 10, y: 24 }, 'Published'),
        past.map((p, i) => {
          const y = 50 + i * 34, w = (n) => (n / most) * 160;
          return [s('text', { class: 'faint', x: 10, y }, time(p.time)), s('text', { x: 160, y }, cut(p.subject, 46)), s('text', { class: 'faint small', x: 160, y: y + 14 }, cut(`${p.author}: ${p.changes}`, 60)),
            s('rect', { class: 'add', x: 560, y: y - 8, width: w(p.summary.add), height: 8 }), s('rect', { class: 'chg', x: 560 + w(p.summary.add), y: y - 8, width: w(p.summary.change), height: 8 }),
            s('rect', { class: 'del', x: 560 + w(p.summary.add) + w(p.summary.change), y: y - 8, width: w(p.summary.destroy), height: 8 })];
        }));
    },
  };
}
