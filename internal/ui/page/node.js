// One agent: inputs, stages, drift, what changed, and its last hour.
import { h, s, put, table, state, plural, millis, rate, percent, ask, failed, empty } from './dom.js';
import { store, lacks } from './store.js';

const W = 300, H = 90;

/** A curve over the last hour; values are numbers, one a sample. */
function curve(title, samples, series, say) {
  const all = series.flatMap((f) => samples.map(f));
  const top = Math.max(...all, 0) || 1, from = samples.length ? new Date(samples[0].at).getTime() : 0;
  const until = samples.length ? new Date(samples[samples.length - 1].at).getTime() : 1;
  const span = Math.max(until - from, 60000);
  const x = (p) => 4 + ((new Date(p.at).getTime() - from) / span) * (W - 8), y = (v) => H - 18 - (v / top) * (H - 44);
  const lines = series.map((f, i) => s('polyline', { class: `curve ${i ? 'second' : ''}`, points: samples.map((p) => `${x(p).toFixed(1)},${y(f(p)).toFixed(1)}`).join(' ') }));
  const last = samples[samples.length - 1], now = last ? series.map((f) => say(f(last))).join(' / ') : '';
  return h('div', { class: 'panel' }, s('svg', { class: 'picture', viewBox: `0 0 ${W} ${H}`, role: 'img', 'aria-label': `${title}: now ${now}, at most ${say(top)}` },
    s('text', { x: 4, y: 14 }, title), s('text', { class: 'end', x: W - 4, y: 14 }, now), lines,
    s('line', { class: 'link', x1: 4, y1: H - 18, x2: W - 4, y2: H - 18, 'stroke-width': 0.7 }),
    s('text', { class: 'faint small', x: 4, y: H - 4 }, `${Math.round((until - from) / 60000)} min ago`), s('text', { class: 'faint small end', x: W - 4, y: H - 4 }, `peak ${say(Math.max(...all, 0))}`)));
}

const time = (t) => (t ? new Date(t).toLocaleTimeString() : '');

export function open(main, query, page) {
  const choose = h('select', { 'aria-label': 'Node', change: () => { const [cluster, node] = choose.value.split(' '); page.set({ cluster, node }); } });
  const body = h('div', { class: 'view' });
  main.append(h('div', { class: 'bar' }, h('label', {}, 'node', choose)), body);
  let view = {}, got = null, timer = 0, closed = false, options = '';

  function nodes() { return [...store.clusters.values()].flatMap((c) => (c.nodes ?? []).map((n) => [c.name, n.name])); }
  function fill() {
    const all = nodes(), text = JSON.stringify([all, view.cluster, view.node]);
    if (text === options) return;
    options = text;
    if (view.node && !all.some(([c, n]) => c === view.cluster && n === view.node)) all.unshift([view.cluster, view.node]);
    put(choose, h('option', { value: '' }, all.length ? 'choose one' : 'none answered'), all.map(([c, n]) => h('option', { value: `${c} ${n}` }, `${c}/${n}`)));
    choose.value = view.node ? `${view.cluster} ${view.node}` : '';
  }

  async function load() {
    clearTimeout(timer);
    const of = view;
    if (!of.node) {
      body.replaceChildren(store.head?.live ? empty('Choose a node.') : empty('No agent is asked. Start hawser ui with --live, --lab, --socket or --context.'));
      return;
    }
    const at = `cluster=${encodeURIComponent(of.cluster)}&node=${encodeURIComponent(of.node)}`;
    const [now, recent] = await Promise.allSettled([ask(`api/node?${at}`), lacks('recent') ? null : ask(`api/recent?${at}`)]);
    if (closed || of !== view) return;
    got = { status: now.value, recent: recent.value };
    const top = body.scrollTop;
    body.replaceChildren(...draw(now, recent));
    body.scrollTop = top;
    timer = setTimeout(load, 2000);
  }

  function draw(now, recent) {
    const out = [];
    if (now.status === 'rejected') out.push(failed(now.reason));
    else {
      const a = now.value;
      out.push(h('h2', {}, state(a.ready ? 'up' : 'partly'), ` ${a.cluster}/${a.node}`),
        h('dl', {}, h('dt', {}, 'is'), h('dd', {}, a.gateway ? `gateway ${a.gateway}` : 'worker', a.drained ? ', drained' : '', a.ready ? ', ready' : ', not ready'),
          h('dt', {}, 'version'), h('dd', {}, a.version), h('dt', {}, 'fabric'), h('dd', {}, h('code', {}, a.digest || 'none')),
          lacks('recent') ? [] : [h('dt', {}, 'last round'), h('dd', {}, `${time(a.lastPass.at)}, took ${a.lastPass.took}, ${plural(a.lastPass.changed, 'change')}`),
            h('dt', {}, 'drift'), h('dd', {}, `${plural(a.lastPass.drift, 'repair')} since the start`)]));
      for (const p of a.problems ?? []) out.push(h('p', { class: 'fair' }, `${p.code}: ${p.text}`));
      for (const p of a.lastPass.failed ?? []) out.push(h('p', { class: 'bad' }, `failed: ${p}`));
      for (const p of a.lastPass.blocked ?? []) out.push(h('p', { class: 'fair' }, `waits: ${p}`));
    }
    if (recent.status === 'rejected') out.push(failed(recent.reason));
    else if (recent.value) {
      const r = recent.value, of = r.samples;
      out.push(h('h3', {}, 'The last hour'), h('div', { class: 'grid' },
        of.some((x) => x.links) ? [curve('links up / all', of, [(x) => x.up, (x) => x.links], String),
          curve('round-trip time', of, [(x) => x.rttMicros], (v) => millis(v) || '0 ms'), curve('loss', of, [(x) => x.loss], percent)] : '',
        of.some((x) => x.links) ? curve('received / sent', of, [(x) => x.rxBytesPerSecond, (x) => x.txBytesPerSecond], rate) : '',
        curve('connections', of, [(x) => x.connections], (v) => String(Math.round(v))), curve('repairs (drift)', of, [(x) => x.drift], (v) => String(Math.round(v)))));
    }
    if (now.value?.inputs?.length) {
      out.push(h('h3', {}, 'Inputs'), table('Inputs', ['', 'input', 'from', 'error'], now.value.inputs.map((i) => [state(i.ok ? 'up' : i.error ? 'down' : 'unknown'), i.name, i.from || '', [i.error, i.refused].filter(Boolean).join(' ')])));
    }
    if (recent.value) {
      out.push(h('h3', {}, 'Stages'), table('Stages', ['', 'kind', 'objects', 'changed', 'drift', 'why'], recent.value.kinds.map((k) => [state({ done: 'up', waits: 'partly', failed: 'down' }[k.state]), k.name, k.objects, k.changed, k.drift, k.why || ''])),
        h('h3', {}, 'Last changes'), recent.value.changes.length ? table('Last changes', ['at', 'change', 'by'], [...recent.value.changes].reverse().map((c) => [time(c.at), h('code', {}, c.text), h('code', {}, c.by || '')])) : h('p', { class: 'faint' }, 'none since the agent began'));
    }
    if (lacks('recent')) out.push(h('p', { class: 'faint' }, 'What its HawserNode says. hawser ui on your machine shows inputs, stages and the last hour too.'));
    if (now.value?.connections?.length) {
      out.push(h('h3', {}, 'Links'), table('Links', ['', 'to', 'driver', 'RTT', 'loss', 'in use', 'why'], now.value.connections.map((c) => [state({ connected: 'up', error: 'down' }[c.status] ?? 'unknown'), `${c.remoteCluster}/${c.remoteGateway}`, c.driver, millis(c.rtt?.avg), percent(c.loss), c.chosen ? 'yes' : 'no', c.why || ''])));
    }
    if (now.value?.moves?.length) {
      out.push(h('h3', {}, 'Links that moved'), table('Links that moved', ['at', 'to cluster', 'from', 'to', 'cause'], [...now.value.moves].reverse().slice(0, 20).map((m) => [time(m.at), m.cluster, m.from || 'none', m.to, m.cause])));
    }
    return out;
  }

  function update(q) {
    const before = view;
    view = { cluster: q.get('cluster') ?? '', node: q.get('node') ?? '' };
    if (!view.node) { const first = nodes().find(([c]) => !view.cluster || c === view.cluster); if (first) { page.set({ cluster: first[0], node: first[1] }, true); return; } }
    fill();
    if (before.cluster !== view.cluster || before.node !== view.node || !got) load();
  }
  update(query);
  return {
    update, changed(c) { if (c.clusters.length) { fill(); if (!view.node) update(page.where().query); } }, close() { closed = true; clearTimeout(timer); }, json: () => got ?? {},
    svg() {
      const panels = [...body.querySelectorAll('.panel svg')];
      if (!panels.length) return null;
      return s('svg', { xmlns: 'http://www.w3.org/2000/svg', class: 'picture', viewBox: `0 0 ${2 * (W + 10)} ${Math.ceil(panels.length / 2) * (H + 12) + 30}` },
        s('text', { class: 'title', x: 4, y: 18 }, `${view.cluster}/${view.node}`),
        panels.map((p, i) => s('g', { transform: `translate(${(i % 2) * (W + 10)} ${30 + Math.floor(i / 2) * (H + 12)})` }, [...p.cloneNode(true).childNodes])));
    },
  };
}
