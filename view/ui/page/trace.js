// The path of packets as swimlanes: according to the topology (explain) and as observed by agents
// (diagnose). The rule where packets ended is red.
import { h, s, drawing, table, plural, place, ask, failed, empty } from './dom.js';
import { store, lacks } from './store.js';
import { embedded } from './session.js';

const lanes = (label, d) => h('div', { class: 'lanes', tabindex: 0, role: 'region', 'aria-label': label }, drawing(d));

const ok = (t) => t.outcome === 'arrived' || t.outcome === 'unclear';

/** Returns the result of a diagnosis: the traces, and the number of packets that each node followed. */
function report(r) {
  const packets = r.nodes.reduce((sum, n) => sum + n.packets, 0), seconds = Math.max(0, ...r.nodes.map((n) => n.seconds));
  const followed = (n) => [plural(n.packets, 'packet'), n.sampled ? ', more came than are followed' : ''];
  const ended = (n) => [...(n.findings ?? []).map((f) => h('p', { class: 'bad' }, `${plural(f.packets, 'packet')} ended at ${f.location}: ${f.text} `, h('span', { class: 'faint' }, f.next))),
    n.reversePathDrops ? h('p', { class: 'fair' }, `rp_filter dropped ${plural(n.reversePathDrops, 'packet')}, of any traffic`) : '', (n.problems ?? []).map((p) => h('p', { class: 'fair' }, p))];
  const traces = r.traces.slice(0, r.drawings.length).map((t, i) => [
    h('h3', {}, h('span', { class: ok(t) ? 'good' : 'bad' }, t.outcome), ` ${t.first.flow.ingress.protocol} ${t.first.flow.ingress.from} → ${t.first.flow.ingress.to}`, t.answered ? ', answered' : ''),
    lanes('The path of these packets', r.drawings[i])]);
  return [h('h2', {}, 'Where packets went'), h('p', {}, `${plural(packets, 'packet')} of the clusterset followed on ${plural(r.nodes.length, 'node')} in ${seconds.toFixed(0)} s.`),
    packets ? traces : empty('No packet came by. Make a request meanwhile.'),
    r.traces.length > r.drawings.length ? h('p', { class: 'faint' }, `and ${plural(r.traces.length - r.drawings.length, 'trace')} more: hawser diagnose lists them`) : '',
    h('h3', {}, 'Nodes'), table('Nodes', ['node', 'followed', 'passed', 'where packets ended'], [
      ...r.nodes.map((n) => [`${n.cluster}/${n.node}`, followed(n), n.passed, ended(n)]),
      ...(r.unreachable ?? []).map((u) => [u.agent, h('span', { class: 'bad' }, 'no answer'), '', u.error])])];
}

/** Returns the whole view for printing. */
export const printed = () => (embedded?.traces ? report(embedded.traces) : []);

export function open(main, query, page) {
  const from = h('input', { 'aria-label': 'From: cluster, or cluster/namespace/pod', placeholder: 'from: g1/shop/client', size: 22, list: 'froms' });
  const to = h('input', { 'aria-label': 'To: name, export or address', placeholder: 'to: web.shop:80', size: 26 });
  const known = h('datalist', { id: 'froms' });
  const long = h('select', { 'aria-label': 'How long to follow packets' }, [3, 5, 10, 30].map((n) => h('option', { value: `${n}s` }, `${n} s`)));
  const follow = h('button', { type: 'button', click: () => diagnose() }, 'Follow packets');
  const answer = h('section', { 'aria-label': 'The path that the topology has' }), packets = h('section', { 'aria-label': 'What nodes saw', role: 'status' });
  const body = h('div', { class: 'view' }, answer, packets);
  const go = () => page.set({ from: from.value.trim(), to: to.value.trim() });
  for (const input of [from, to]) input.addEventListener('keydown', (e) => { if (e.key === 'Enter') go(); });
  const bar = [lacks('explain') ? [] : [from, to, known, h('button', { type: 'button', click: go }, 'Explain')], lacks('follow') ? [] : [h('label', {}, 'for', long), follow]].flat();
  main.append(...(bar.length ? [h('div', { class: 'bar' }, bar)] : []), body);
  let view = {}, got = null, traces = null, busy = false;

  async function explain() {
    if (!view.from || !view.to) { answer.replaceChildren(empty('Enter a source, a cluster (g1) or a pod (g1/shop/client), and a destination: a name (web.shop:80), an export (shop/web) or an address.')); return; }
    answer.replaceChildren(h('p', { class: 'faint' }, 'asking...'));
    try { got = await ask(`api/explain?from=${encodeURIComponent(view.from)}&to=${encodeURIComponent(view.to)}`); } catch (err) { got = null; answer.replaceChildren(failed(err)); return; }
    const yes = got.allowed && got.live?.verdict !== 'no';
    answer.replaceChildren(h('h2', {}, h('span', { class: yes ? 'good' : 'bad' }, got.live?.verdict === 'unknown' ? 'not known' : yes ? 'yes' : 'no'), `: ${got.live?.reason ?? got.reason}`),
      got.drawing ? lanes('The path of packets', got.drawing) : '',
      ...(got.live?.missing ?? []).map((m) => h('p', { class: 'bad' }, m)), ...(got.live?.unknown ?? []).map((m) => h('p', { class: 'fair' }, m)),
      got.lines?.length ? h('div', {}, h('h3', {}, 'Because of'), table('Because of', ['line', 'path', 'says'], got.lines.map((l) => [place(l.source || ''), h('code', {}, l.path), l.text]))) : '');
  }

  async function diagnose() {
    if (busy) return;
    busy = true; follow.disabled = true;
    packets.replaceChildren(h('p', {}, `following packets for ${long.value}: make the request that does not work now`));
    const q = new URLSearchParams({ for: long.value });
    const id = got?.to?.export;
    if (id) q.set('export', id);
    try {
      traces = await ask(`api/diagnose?${q}`, { method: 'POST' });
      show();
    } catch (err) { packets.replaceChildren(failed(err)); }
    busy = false; follow.disabled = !store.head?.live;
  }
  const show = () => packets.replaceChildren(...report(traces).flat(Infinity).filter(Boolean));

  function update(q) {
    const before = view;
    view = { from: q.get('from') ?? '', to: q.get('to') ?? '' };
    from.value = view.from; to.value = view.to;
    follow.disabled = !store.head?.live;
    known.replaceChildren(...[...store.clusters.keys()].slice(0, 300).map((n) => h('option', { value: n })));
    if (lacks('explain')) { if (embedded?.traces && !traces) { traces = embedded.traces; show(); } return; }
    if (before.from !== view.from || before.to !== view.to || !got) {
      if (!busy) { packets.replaceChildren(); traces = null; } // of the previous query
      explain();
    }
  }
  update(query);
  return {
    update, json: () => ({ explain: got, diagnose: traces }),
    svg() {
      const all = [...body.querySelectorAll('.lanes svg')];
      if (!all.length) return null;
      let y = 0;
      const parts = all.map((p) => { const g = s('g', { transform: `translate(0 ${y})` }, [...p.cloneNode(true).childNodes]); y += Number(p.getAttribute('height')) + 20; return g; });
      return s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture drawing', viewBox: `0 0 ${Math.max(...all.map((p) => Number(p.getAttribute('width'))))} ${y}` }, parts);
    },
  };
}
