// Problems, running versions, and the results of hawser verify.
import { h, table, time, ask, failed } from './dom.js';
import { store, polling } from './store.js';

const LISTED = 500;

function content({ findings, versions, verified }) {
  const live = store.head?.live, rest = findings.length - LISTED;
  return [h('h2', {}, 'Findings'), findings.length ? table('Findings', ['', 'where', 'what', 'what to do', 'by'], findings.slice(0, LISTED).map((f) => [
    h('span', { class: f.severity === 'error' ? 'bad' : 'fair' }, f.severity), h('code', {}, f.position), f.text, f.hint || '', f.by]))
    : h('p', { class: 'good' }, live ? 'None: no agent reports a problem.' : 'None in the topology. No agent was asked.'),
  rest > 0 ? h('p', { class: 'faint' }, `and ${rest} more`) : '',
  h('h2', {}, 'Versions'), versions.length ? table('Versions', ['cluster', 'node', 'gateway', 'version', 'fabric', 'ready'], versions.map((v) => [
    v.cluster, v.node, v.gateway || '', v.version, h('code', {}, v.fabric), h('span', { class: v.ready ? 'good' : 'bad' }, v.ready ? 'yes' : 'no')]))
    : h('p', { class: 'faint' }, 'No agent was asked.'),
  h('h2', {}, 'Verified'), ...verification(verified)];
}

function verification(v) {
  if (!v) return [h('p', { class: 'faint' }, 'Nothing was verified: with hawser report --verify every agent connects to every export.')];
  const results = v.nodes.flatMap((n) => n.results.map((r) => ({ ...r, of: `${n.cluster}/${n.node}` })));
  const tried = results.filter((r) => !r.skipped), reached = tried.filter((r) => !r.error && !r.unknown);
  const cell = (r) => (r.skipped ? [h('span', { class: 'fair' }, 'not tried'), ` ${r.skipped}`] : [
    h('span', { class: r.error ? 'bad' : r.unknown ? 'fair' : 'good' }, r.error || r.unknown || (r.reached ?? []).join(', ')), ` ${((r.micros ?? 0) / 1000).toFixed(1)} ms`]);
  return [h('p', { class: reached.length < tried.length || v.unreachable?.length ? 'bad' : 'good' },
    `From ${time(v.startedAt)} to ${time(v.ended)} ${reached.length} of ${tried.length} names answered, on ${v.nodes.length} nodes.`),
  (v.unreachable ?? []).map((u) => h('p', { class: 'bad' }, `No answer: ${u.agent}: ${u.error}`)),
  table('Verified', ['node', 'name', 'export', 'answered'], results.map((r) => [r.of, r.name, r.export, cell(r)])),
  h('p', { class: 'faint' }, 'SHA-256 of the results: ', h('code', {}, v.sha256))];
}

/** Returns the whole view for printing. */
export const printed = async () => content(await ask('api/findings'));

export function open(main, query) {
  const body = h('div', { class: 'view' });
  main.append(body);
  let got = null, shown = '', timer = 0, closed = false;

  async function load() {
    clearTimeout(timer);
    try {
      got = await ask('api/findings');
      const text = JSON.stringify(got);
      if (text !== shown && !closed) { shown = text; body.replaceChildren(...content(got).flat(Infinity).filter(Boolean)); }
    } catch (err) { body.replaceChildren(failed(err)); shown = ''; }
    if (!closed && polling()) timer = setTimeout(load, 2000);
  }
  load();
  return { update() {}, changed(c) { if (c.whole) load(); }, close() { closed = true; clearTimeout(timer); }, json: () => got ?? {}, svg: () => null };
}
