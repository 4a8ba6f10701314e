// One agent: its inputs, its last round and its links.
import { h, put, table, state, plural, millis, percent, time, ago, duration, ask, failed, empty } from './dom.js';
import { store, lacks, polling } from './store.js';
import { embedded } from './session.js';

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
      body.replaceChildren(store.head?.live ? empty('Choose a node.') : empty(embedded ? 'No agent was asked: hawser report --live asks them.' : 'No agent is asked. Start hawser ui with --live, --lab, --socket or --context.'));
      return;
    }
    const at = `cluster=${encodeURIComponent(of.cluster)}&node=${encodeURIComponent(of.node)}`;
    const [now] = await Promise.allSettled([ask(`api/node?${at}`)]);
    if (closed || of !== view) return;
    got = now.value;
    const top = body.scrollTop;
    body.replaceChildren(...draw(now));
    body.scrollTop = top;
    if (polling()) timer = setTimeout(load, 2000);
  }

  function draw(now) {
    if (now.status === 'rejected') return [failed(now.reason)];
    const a = now.value, short = lacks('follow') && !embedded; // the report of a HawserNode
    const part = (title, ...content) => h('section', { class: 'panel' }, h('h3', {}, title), content);
    const facts = h('dl', {}, h('dt', {}, 'is'), h('dd', {}, a.gateway ? `gateway ${a.gateway}` : 'worker', a.drained ? ', drained' : '', a.ready ? ', ready' : ', not ready'),
      h('dt', {}, 'version'), h('dd', {}, a.version), h('dt', {}, 'fabric'), h('dd', {}, h('code', {}, a.digest || 'none')),
      short ? [] : [h('dt', {}, 'last round'), h('dd', {}, `${time(a.lastRound.at)}, took ${duration(a.lastRound.took)}, ${plural(a.lastRound.changed, 'change')}`),
        h('dt', {}, 'drift'), h('dd', {}, `${plural(a.lastRound.drift, 'repair')} since the start`)]);
    const problems = [(a.lastRound.failed ?? []).map((p) => h('p', { class: 'bad' }, `failed: ${p}`)), (a.problems ?? []).map((p) => h('p', { class: 'fair' }, `${p.code}: ${p.text}`)),
      (a.lastRound.blocked ?? []).map((p) => h('p', { class: 'fair' }, `waits: ${p}`))];
    const inputs = (a.inputs ?? []).map((i) => [state(i.ok ? 'up' : i.error ? 'down' : 'unknown'), i.name, i.from || '', [i.error, i.refused].filter(Boolean).join(' ')]);
    const links = (a.connections ?? []).map((c) => [state({ connected: 'up', error: 'down' }[c.status] ?? 'unknown'), `${c.remoteCluster}/${c.remoteGateway}`, c.driver, millis(c.rtt?.avg), percent(c.loss), c.active ? 'yes' : 'no', c.reason || '']);
    const moves = [...(a.moves ?? [])].reverse().slice(0, 20).map((m) => [time(m.at), m.cluster, m.from || 'none', m.to, m.cause]);
    return [
      h('h2', {}, state(a.lastAnswer ? 'silent' : a.ready ? 'up' : 'partly'), ` ${a.cluster}/${a.node}`),
      a.lastAnswer ? h('p', { class: 'stale', role: 'alert' }, `This agent does not answer. Below is its last report, of ${time(a.lastAnswer)} (${ago(a.lastAnswer)}).`) : '',
      h('div', { class: `columns ${a.lastAnswer ? 'old' : ''}` },
        part('Agent', facts, problems),
        inputs.length ? part('Inputs', table('Inputs', ['', 'input', 'from', 'error'], inputs)) : '',
        links.length ? part('Links', table('Links', ['', 'to', 'driver', 'RTT', 'loss', 'in use', 'reason'], links)) : '',
        moves.length ? part('Links that moved', table('Links that moved', ['at', 'to cluster', 'from', 'to', 'cause'], moves)) : ''),
      short ? h('p', { class: 'faint' }, 'From its HawserNode. hawser ui on your machine shows its inputs and its last round too.') : '',
      embedded && !links.length ? h('p', { class: 'faint' }, 'The file has no links of this node.') : ''].filter(Boolean);
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
    update, changed(c) { if (c.clusters.length) { fill(); if (!view.node) update(page.where().query); } }, close() { closed = true; clearTimeout(timer); }, json: () => got ?? {}, svg: () => null,
  };
}
