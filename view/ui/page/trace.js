// Ways of packets as swim-lanes: where they should go (explain), and what agents saw
// (diagnose), with the rule where one ended in red.
import { h, s, plural, millis, cut, ask, failed, empty } from './dom.js';
import { store, lacks } from './store.js';

const LANE = 66, STEP = 250, LEFT = 150;

/** Draws steps [{lane, title, note, bad, good}] in order, and gives the picture. */
function lanesOf(label, steps) {
  const lanes = [...new Set(steps.map((p) => p.lane))];
  const width = LEFT + steps.length * STEP + 10, height = lanes.length * LANE + 16;
  const out = s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `${label}: ${steps.map((p) => `${p.lane}: ${p.title}${p.note ? `, ${p.note}` : ''}${p.bad ? ' (ended here)' : ''}`).join('; ')}` });
  lanes.forEach((name, i) => out.append(s('text', { class: 'title', x: 8, y: 16 + i * LANE + LANE / 2 }, cut(name, 17), s('title', {}, name)), s('line', { class: 'lane', x1: LEFT - 10, y1: 12 + i * LANE + LANE / 2, x2: width - 8, y2: 12 + i * LANE + LANE / 2 })));
  const middle = (i) => ({ x: LEFT + i * STEP + (STEP - 40) / 2, y: 12 + lanes.indexOf(steps[i].lane) * LANE + LANE / 2 });
  steps.forEach((p, i) => {
    if (i === 0) return;
    const a = middle(i - 1), b = middle(i), ax = a.x + (STEP - 40) / 2, bx = b.x - (STEP - 40) / 2, mx = (ax + bx) / 2;
    out.append(s('path', { class: `link ${p.bad ? 'red' : 'green'}`, 'stroke-width': 2, d: `M${ax} ${a.y} C${mx} ${a.y} ${mx} ${b.y} ${bx - 7} ${b.y}` }), s('path', { class: p.bad ? 'del' : 'add', d: `M${bx} ${b.y} l-8 -4 v8z` }));
  });
  steps.forEach((p, i) => {
    const m = middle(i);
    out.append(s('rect', { class: `box ${p.bad ? 'red' : 'green'}`, x: m.x - (STEP - 40) / 2, y: m.y - 24, width: STEP - 40, height: 48, rx: 7 }),
      s('text', { class: `middle ${p.bad ? 'red' : ''}`, x: m.x, y: m.y - 4 }, cut(p.title, 30)), s('text', { class: `middle small ${p.bad ? 'red' : 'faint'}`, x: m.x, y: m.y + 13 }, cut(p.note || '', 31), s('title', {}, p.note || p.title)));
  });
  return out;
}

/** The way that the topology gives, and how it is now. */
function expected(a, t) {
  const now = t.live;
  const from = a.from.pod ? `${a.from.namespace}/${a.from.pod}` : a.from.address || (a.from.node ? 'a process on a node' : 'any pod');
  const steps = [{ lane: a.from.cluster, title: from, note: (t.requested ?? []).length ? `asks for ${t.requested.join(', ')}` : '' }];
  if (!t.allowed) { steps.push({ lane: t.cluster, title: 'not reached', note: t.why, bad: true }); return steps; }
  for (const l of t.links ?? []) {
    const live = now?.hops?.flatMap((x) => x.links).find((k) => k.inUse && k.from.split('/')[0] === l.from.split('/')[0] && k.to.split('/')[0] === l.to.split('/')[0]);
    steps.push({ lane: live?.from ?? l.from, title: 'leaves by a tunnel', note: `${l.driver}${live?.rttMicros ? `, ${millis(live.rttMicros)}` : ''}` });
    steps.push({ lane: live?.to ?? l.to, title: 'comes out of the tunnel', note: (t.sources ?? []).length ? `from ${t.sources.join(', ')}` : '', bad: live && live.state !== 'alive' });
  }
  const bad = now && now.verdict === 'no';
  steps.push({ lane: t.cluster, title: t.backend || 'arrives', note: bad ? (now.why ?? []).join('; ') : (now?.backends ?? []).join(', ') || (t.translated ?? []).join(', '), bad });
  return steps;
}

/** What nodes saw of one trip: the way with where it ended. */
function seen(step) {
  const out = [];
  for (let at = step; at; at = (at.next ?? []).find((n) => ended(n)) ?? at.next?.[0]) {
    const j = at.flow, wrong = at.finding || (at.outcome && !['arrived', 'unclear'].includes(at.outcome));
    out.push({ lane: `${at.cluster}/${at.node}`, title: `${j.ingress.from} → ${j.ingress.to}`, note: at.finding ? at.finding.place : j.egress.to !== j.ingress.to || j.egress.from !== j.ingress.from ? `leaves as ${j.egress.from} → ${j.egress.to}` : at.outcome && at.outcome !== 'arrived' ? at.outcome : `${plural(j.packets, 'packet')} ${j.out ? `to ${j.out}` : ''}`, bad: Boolean(wrong) });
    if (out.length > 30) break;
  }
  return out;
}
function ended(step) { return step.finding || (step.next ?? []).some(ended); }
function findings(step) { return [...(step.finding ? [step.finding] : []), ...(step.next ?? []).flatMap(findings)]; }

export function open(main, query, page) {
  const from = h('input', { 'aria-label': 'From: cluster, or cluster/namespace/pod', placeholder: 'from: g1/shop/client', size: 22, list: 'froms' });
  const to = h('input', { 'aria-label': 'To: name, export or address', placeholder: 'to: web.shop:80', size: 26 });
  const known = h('datalist', { id: 'froms' });
  const long = h('select', { 'aria-label': 'How long to follow packets' }, [3, 5, 10, 30].map((n) => h('option', { value: `${n}s` }, `${n} s`)));
  const follow = h('button', { type: 'button', click: () => diagnose() }, 'Follow packets');
  const answer = h('section', { 'aria-label': 'The way that the topology gives' }), packets = h('section', { 'aria-label': 'What nodes saw', role: 'status' });
  const body = h('div', { class: 'view' }, answer, packets);
  const go = () => page.set({ from: from.value.trim(), to: to.value.trim() });
  for (const input of [from, to]) input.addEventListener('keydown', (e) => { if (e.key === 'Enter') go(); });
  main.append(h('div', { class: 'bar' }, from, to, known, h('button', { type: 'button', click: go }, 'Explain'), lacks('follow') ? [] : [h('label', {}, 'for', long), follow]), body);
  let view = {}, got = null, traces = null, busy = false;

  async function explain() {
    if (!view.from || !view.to) { answer.replaceChildren(empty('Say from where and to what: a cluster (g1) or a pod (g1/shop/client), and a name (web.shop:80), an export (shop/web) or an address.')); return; }
    answer.replaceChildren(h('p', { class: 'faint' }, 'asking...'));
    try { got = await ask(`api/explain?from=${encodeURIComponent(view.from)}&to=${encodeURIComponent(view.to)}`); } catch (err) { got = null; answer.replaceChildren(failed(err)); return; }
    const yes = got.allowed && got.live?.verdict !== 'no';
    answer.replaceChildren(h('h2', {}, h('span', { class: yes ? 'good' : 'bad' }, got.live?.verdict === 'unknown' ? 'not known' : yes ? 'yes' : 'no'), `: ${got.live?.why ?? got.why}`),
      ...(got.destinations ?? []).map((t) => h('div', { class: 'lanes', tabindex: 0, role: 'region', 'aria-label': `The way to ${t.cluster}` }, lanesOf(`the way to ${t.cluster}`, expected(got, t)))),
      ...(got.live?.missing ?? []).map((m) => h('p', { class: 'bad' }, m)), ...(got.live?.unknown ?? []).map((m) => h('p', { class: 'fair' }, m)),
      got.lines?.length ? h('div', {}, h('h3', {}, 'Because of'), h('table', {}, h('thead', {}, h('tr', {}, ['line', 'path', 'says'].map((t) => h('th', { scope: 'col' }, t)))), h('tbody', {}, got.lines.map((l) => h('tr', {}, h('td', { class: 'key' }, h('code', {}, l.source || '')), h('td', {}, h('code', {}, l.path)), h('td', {}, l.text)))))) : '');
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
      const list = traces.traces.slice(0, 40);
      packets.replaceChildren(h('h2', {}, `What ${plural(traces.nodes?.length ?? 0, 'node')} saw`), ...(traces.unreachable ?? []).map((u) => h('p', { class: 'fair' }, `${u.agent}: ${u.error}`)),
        ...(list.length ? list.map((t) => {
          const ok = t.outcome === 'arrived' || t.outcome === 'unclear', why = [...findings(t.first), ...(t.answer ? findings(t.answer) : [])];
          return h('div', {}, h('h3', {}, h('span', { class: ok ? 'good' : 'bad' }, t.outcome), ` ${t.first.flow.ingress.protocol} ${t.first.flow.ingress.from} → ${t.first.flow.ingress.to}`, t.answered ? ', answered' : ''),
            h('div', { class: 'lanes', tabindex: 0, role: 'region', 'aria-label': 'The way' }, lanesOf('the way of these packets', seen(t.first))),
            t.answer ? h('div', { class: 'lanes', tabindex: 0, role: 'region', 'aria-label': 'The answer' }, lanesOf('the way of the answer', seen(t.answer))) : '',
            why.map((f) => h('p', { class: 'bad' }, `${plural(f.packets, 'packet')} ended at ${f.place}: ${f.text} `, h('span', { class: 'faint' }, f.do))));
        }) : [empty('No packet came by. Make a request meanwhile.')]));
    } catch (err) { packets.replaceChildren(failed(err)); }
    busy = false; follow.disabled = !store.head?.live;
  }

  function update(q) {
    const before = view;
    view = { from: q.get('from') ?? '', to: q.get('to') ?? '' };
    from.value = view.from; to.value = view.to;
    follow.disabled = !store.head?.live;
    known.replaceChildren(...[...store.clusters.keys()].slice(0, 300).map((n) => h('option', { value: n })));
    if (before.from !== view.from || before.to !== view.to || !got) {
      if (!busy) { packets.replaceChildren(); traces = null; } // they were of another question
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
      return s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture', viewBox: `0 0 ${Math.max(...all.map((p) => Number(p.getAttribute('width'))))} ${y}` }, parts);
    },
  };
}
