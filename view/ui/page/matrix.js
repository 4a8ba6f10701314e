// Who can reach what: exports by clusters.
import { h, s, state, table, plural, cut, place, ask, failed, empty } from './dom.js';
import { lacks, polling } from './store.js';

const verdict = (c) => (c.allowed && c.dnsProblem ? 'unresolved' : c.sameCluster ? 'own' : !c.allowed ? 'no' : c.liveVerdict === 'no' ? 'fails' : c.liveVerdict === 'unknown' ? 'some' : 'yes');
const words = { own: 'own', no: 'no', fails: 'fails now', unresolved: 'no name', some: 'not known', yes: 'yes' };
const tones = { own: 'yes', no: 'no', fails: 'fails', unresolved: 'fails', some: 'some', yes: 'yes' };
const classes = { yes: 'good', own: 'good', fails: 'bad', unresolved: 'bad', some: 'fair', no: 'fair' };

/** Returns the source addresses that the servers see. */
const sees = (c) => [...new Set((c.destinations ?? []).filter((t) => t.allowed).flatMap((t) => t.sources ?? []))].sort();

const parts = (e) => e.parts.map((p) => `${p.cluster}${p.endpoints?.length ? ` (${p.endpoints.length} ready)` : { yes: ' (ready)', no: ' (none ready)', unknown: ' (not known)' }[p.ready] ?? ''}`).join(', ');

/** Returns the whole view for printing: a row for each cell, with the line that decides it. */
export async function printed() {
  const got = await ask('api/matrix');
  const asks = (c) => [...new Set((c.destinations ?? []).filter((t) => t.allowed).flatMap((t) => t.requested ?? []))].join(', ');
  const about = (e) => [e.name, (e.ports ?? []).join(' '), e.type, e.policy, e.affinity && `affinity ${e.affinity}`, e.dynamic && 'made in clusters', e.ips?.length && `clusterset IP ${e.ips.join(' ')}`, e.source].filter(Boolean).join(', ');
  return [h('h2', {}, 'Who reaches what'), got.exports.length ? got.exports.map((e) => [h('h3', {}, e.id), h('p', {}, about(e)), h('p', {}, `exported by ${parts(e)}`),
    table(e.id, ['from', '', 'reason', 'line', 'asks for', 'seen as'], e.cells.map((c) => {
      const of = verdict(c), elsewhere = (c.destinations ?? []).some((t) => t.allowed && t.cluster !== c.cluster);
      return [c.cluster, h('span', { class: classes[of] }, words[of]), [c.reason, c.dnsProblem, ...(c.liveReasons ?? [])].filter(Boolean).join('; '), c.source || '', asks(c),
        !c.allowed ? '' : sees(c).join(', ') || (elsewhere ? 'its pods\' own addresses' : '')];
    }))]) : h('p', { class: 'faint' }, 'There is no export.'),
  got.moreClusters || got.moreExports ? h('p', { class: 'faint' }, `Left out: ${plural(got.moreClusters ?? 0, 'cluster')} and ${plural(got.moreExports ?? 0, 'export')}; hawser explain answers for each.`) : ''];
}

export function open(main, query, page) {
  const find = h('input', { type: 'search', 'aria-label': 'Find an export or a cluster', placeholder: 'find ( / )', input: () => page.set({ q: find.value.trim() }, true) });
  const note = h('span', { class: 'faint', role: 'status' });
  const body = h('div', { class: 'view' });
  main.append(h('div', { class: 'bar' }, find, note), body);
  let got = null, view = {}, timer = 0, shownText = '', closed = false;

  async function load() {
    clearTimeout(timer);
    try {
      got = await ask('api/matrix');
      const text = JSON.stringify(got);
      if (text !== shownText) { shownText = text; draw(); }
    } catch (err) { body.replaceChildren(failed(err)); shownText = ''; }
    if (!closed && polling()) timer = setTimeout(load, 2000);
  }

  const hit = (text) => !view.q || text.toLowerCase().includes(view.q.toLowerCase());
  function shown() {
    const named = got.clusters.filter((c) => hit(c));
    const exports = got.exports.filter((e) => hit(e.id));
    // The search matches exports, clusters, or both.
    return { exports: exports.length ? exports : got.exports, clusters: named.length ? named : got.clusters };
  }

  function draw() {
    if (!got) return;
    const { exports, clusters } = shown();
    note.textContent = [plural(got.exports.length, 'export'), plural(got.clusters.length, 'cluster'), got.moreClusters && `${got.moreClusters} clusters not shown`, got.moreExports && `${got.moreExports} exports not shown`].filter(Boolean).join(', ');
    if (!got.exports.length) { body.replaceChildren(empty('Nothing is exported: the topology has no exports.')); return; }
    const focused = document.activeElement?.dataset?.cell;
    const side = h('section', { class: 'side', 'aria-label': 'Details' });
    const grid = h('table', { class: 'matrix' },
      h('thead', {}, h('tr', {}, h('th', { scope: 'col' }, 'export'), clusters.map((c) => h('th', { scope: 'col' }, cut(c, 14))))),
      h('tbody', {}, exports.map((e) => h('tr', {},
        h('th', { scope: 'row' }, h('a', { href: page.link('matrix', { q: view.q, sel: e.id }) }, cut(e.id, 40))),
        clusters.map((name) => {
          const c = e.cells.find((x) => x.cluster === name), of = verdict(c), key = `${e.id}@${name}`;
          return h('td', {}, h('button', {
            type: 'button', class: tones[of], 'data-cell': key, 'aria-pressed': view.sel === key ? 'true' : 'false',
            'aria-label': `${name} to ${e.id}: ${words[of]}`, title: [c.dnsProblem, c.source ? `${c.reason} (${c.source})` : c.reason].filter(Boolean).join('; '),
            click: () => page.set({ sel: key }, true), keydown: move,
          }, words[of]));
        })))));
    body.replaceChildren(h('div', { class: 'split' }, h('div', { class: 'scroll', tabindex: 0, role: 'region', 'aria-label': 'Who reaches which export' }, grid), side));
    detail(side);
    if (focused) grid.querySelector(`[data-cell="${CSS.escape(focused)}"]`)?.focus();
  }

  function move(e) {
    const td = e.target.closest('td'), tr = td.parentNode, i = td.cellIndex;
    const to = { ArrowRight: td.nextElementSibling, ArrowLeft: td.previousElementSibling, ArrowDown: tr.nextElementSibling?.cells[i], ArrowUp: tr.previousElementSibling?.cells[i] }[e.key];
    const button = to?.querySelector('button');
    if (button) { e.preventDefault(); button.focus(); }
  }

  function detail(side) {
    const [id, name] = (view.sel || '').split('@');
    const e = got.exports.find((x) => x.id === id);
    if (!e) { side.replaceChildren(h('p', { class: 'faint' }, 'Choose a cell for the line of the topology that decides it.')); return; }
    const about = [h('h2', {}, e.id), h('dl', {}, h('dt', {}, 'name'), h('dd', {}, h('code', {}, e.name)), h('dt', {}, 'type'), h('dd', {}, e.type, e.dynamic ? ', made in clusters' : ''),
      h('dt', {}, 'ports'), h('dd', {}, (e.ports ?? []).join(', ') || 'none'), h('dt', {}, 'clusterset IP'), h('dd', {}, (e.ips ?? []).join(', ') || 'none'),
      h('dt', {}, 'policy'), h('dd', {}, e.policy || 'none', e.affinity ? `, ${e.affinity}` : ''), h('dt', {}, 'allowed'), h('dd', {}, e.allow?.join(', ') || 'every cluster'),
      e.source ? [h('dt', {}, 'topology'), h('dd', {}, place(e.source))] : []),
    h('h3', {}, 'Exported by'), h('ul', {}, e.parts.map((p) => h('li', {}, p.ready ? [state({ yes: 'up', no: 'down' }[p.ready] ?? 'unknown'), ' '] : '', p.cluster, p.ips?.length ? ` as ${p.ips.join(', ')}` : '',
      p.ready ? `, ready: ${p.ready}` : '', p.endpoints?.length ? `, endpoints ${p.endpoints.join(', ')}` : '')))];
    const c = name && e.cells.find((x) => x.cluster === name);
    if (c) {
      const of = verdict(c);
      about.push(h('h3', {}, `From ${name}`), h('p', { class: classes[of] }, words[of]), h('p', {}, c.reason),
        c.path ? h('p', {}, 'decided by ', h('code', {}, c.path), c.source ? [' at ', place(c.source)] : '') : '',
        c.dnsProblem ? h('p', { class: 'bad' }, `not resolvable in ${name}: ${c.dnsProblem}`) : '',
        (c.liveReasons ?? []).map((t) => h('p', { class: 'bad' }, t)),
        sees(c).length ? h('p', {}, `the other side sees ${sees(c).join(', ')}`) : c.allowed ? h('p', {}, 'the other side sees the client\'s own address') : '',
        (c.destinations ?? []).map((t) => h('p', { class: 'faint' }, `${t.cluster}: ${t.allowed ? [t.requested?.length && `asked as ${t.requested.join(', ')}`, t.links?.length && `over ${t.links.map((l) => `${l.from} - ${l.to}`).join(', ')}`, t.backend && `handed to ${t.backend}`].filter(Boolean).join(', ') || 'yes' : `no, ${t.reason}`}`)),
        lacks('explain') ? '' : h('p', {}, h('a', { href: page.link('trace', { from: name, to: e.id }) }, 'show the path')));
    }
    side.replaceChildren(...about.flat());
  }

  function update(q) {
    view = { q: q.get('q') ?? '', sel: q.get('sel') ?? '' };
    if (document.activeElement !== find) find.value = view.q;
    draw();
  }
  update(query);
  load();
  return {
    update, changed(c) { if (c.whole) load(); }, close() { closed = true; clearTimeout(timer); }, json: () => got ?? {},
    svg() {
      if (!got?.exports.length) return null;
      const { exports, clusters } = shown(), w = 84, left = 280, top = 60;
      return s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture', viewBox: `0 0 ${left + clusters.length * w + 20} ${top + exports.length * 28 + 20}` },
        clusters.map((c, i) => s('text', { class: 'title middle', x: left + i * w + w / 2, y: top - 14 }, cut(c, 10))),
        exports.map((e, j) => [s('text', { class: 'end', x: left - 10, y: top + j * 28 + 17 }, cut(e.id, 40)),
          clusters.map((name, i) => {
            const of = verdict(e.cells.find((x) => x.cluster === name));
            return [s('rect', { class: `box ${{ yes: 'up', own: 'up', fails: 'down', unresolved: 'down', some: 'partly', no: 'unknown' }[of]}`, x: left + i * w + 3, y: top + j * 28 + 2, width: w - 6, height: 22, rx: 4 }), s('text', { class: 'middle small', x: left + i * w + w / 2, y: top + j * 28 + 17 }, words[of])];
          })]));
    },
  };
}
