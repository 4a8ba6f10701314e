// The map: clusters, gateways and links. The server computes the positions of clusters. Updates
// change existing elements, so that other elements do not move.
import { h, s, put, table, state, plural, millis, rate, percent, cut, time, place, ask, failed } from './dom.js';
import { store, linkKey } from './store.js';
import { embedded } from './session.js';

const CARD = { w: 220, h: 92 };
const CLOSEST = 1.5; // maximum automatic zoom of cards
const LARGE = 64; // more clusters than this are first drawn in groups

/** Divides names into at most 32 groups, by their parts between dashes or by their prefixes. */
export function groupsOf(names) {
  const by = (key) => {
    const out = new Map();
    for (const n of names) { const k = key(n); out.set(k, [...(out.get(k) ?? []), n]); }
    return out;
  };
  let best = null;
  const consider = (key, shortest) => {
    for (let n = shortest; n < 24; n++) {
      const g = by((name) => key(name, n));
      if (g.size > 32) break;
      if (g.size > 1 && (!best || g.size > best.size)) best = g;
    }
  };
  consider((name, n) => name.split('-').slice(0, n).join('-'), 1);
  if (!best) consider((name, n) => name.slice(0, n), 1);
  return best ?? new Map([['all', names]]);
}

const order = ['down', 'silent', 'partly', 'unknown', 'up', ''];
const worst = (states) => states.reduce((a, b) => (order.indexOf(b || '') < order.indexOf(a) ? b || '' : a), '');

/** Returns the combined state of several objects: down if all are down, partly if some are. */
function together(states) {
  if (states.every((x) => x === states[0])) return states[0] || '';
  return states.some((x) => x === 'down' || x === 'partly') ? 'partly' : worst(states);
}

const gateways = (c, of) => c.gateways.filter((g) => g.state === of);
const silent = (c) => Math.max((c.nodes ?? []).filter((n) => n.lastAnswer).length, gateways(c, 'silent').length);

/** Returns the drawn state of a cluster: the state of its worst part, because it is the cause. */
const toneOf = (c) => (gateways(c, 'down').length ? 'down' : silent(c) ? 'silent' : c.problems ? 'partly' : c.state);

/** Returns a short text about the problems of a cluster; empty if there are none. */
function troubleOf(c) {
  const down = gateways(c, 'down').length;
  if (down) return `${c.gateways.length - down} of ${plural(c.gateways.length, 'gateway')}`;
  if (silent(c)) return `${plural(silent(c), 'agent')} silent`;
  return c.problems ? plural(c.problems, 'problem') : c.state === 'partly' ? 'not ready' : '';
}

function ring(names, step, left, top) {
  const r = names.length < 3 ? step * 0.7 : step / (2 * Math.sin(Math.PI / names.length));
  const rx = r * 1.05, ry = names.length < 3 ? 0 : r * 0.85;
  const places = new Map(names.map((n, i) => {
    const angle = Math.PI + (2 * Math.PI * i) / names.length;
    return [n, { x: left + rx + rx * Math.cos(angle), y: top + ry + ry * Math.sin(angle), angle }];
  }));
  return { places, width: 2 * (left + rx), height: 2 * (top + ry) };
}

/** Returns the visible nodes and links with their positions. */
function sceneOf(view) {
  const { head, clusters, links } = store;
  const names = [...clusters.keys()];
  const groups = names.length > LARGE ? groupsOf(names) : null;
  if (groups && !view.group && view.as !== 'clusters' && !view.focus) {
    const keys = [...groups.keys()];
    const { places, width, height } = ring(keys, 150, 130, 110);
    const of = new Map();
    for (const [k, list] of groups) for (const n of list) of.set(n, k);
    const joined = new Map();
    for (const l of links.values()) {
      const [a, b] = [of.get(l.between[0]), of.get(l.between[1])].sort();
      if (a === b) continue;
      const key = `${a}/${b}`;
      const j = joined.get(key) ?? { between: [a, b], states: [], count: 0, bytesPerSecond: 0, rttMicroseconds: 0, loss: 0 };
      j.states.push(l.state || ''); j.count++; j.bytesPerSecond += l.bytesPerSecond || 0;
      j.rttMicroseconds = Math.max(j.rttMicroseconds, l.rttMicroseconds || 0); j.loss = Math.max(j.loss, l.loss || 0);
      joined.set(key, j);
    }
    return {
      kind: 'groups', width, height, groups,
      nodes: keys.map((k) => ({ key: k, ...places.get(k), members: groups.get(k) })),
      links: [...joined.values()].map((j) => ({ ...j, state: together(j.states) })),
    };
  }
  if (groups && view.group && groups.has(view.group) && !view.focus) {
    const list = groups.get(view.group);
    const cards = list.length <= 16;
    const { places, width, height } = ring(list, cards ? CARD.w + 60 : 26, cards ? 150 : 190, cards ? 90 : 190);
    return {
      kind: cards ? 'cards' : 'dots', width, height, groups,
      nodes: list.map((n) => ({ key: n, ...places.get(n), cluster: clusters.get(n) })),
      links: [...links.values()].filter((l) => places.has(l.between[0]) && places.has(l.between[1])),
    };
  }
  const all = [...clusters.values()];
  const room = head.cards ? roomFor(all, head, view.aspect) : { x: 1, y: 1 };
  const left = Math.min(...all.map((c) => c.x)), top = Math.min(...all.map((c) => c.y));
  const right = Math.max(...all.map((c) => c.x)), bottom = Math.max(...all.map((c) => c.y));
  return {
    kind: head.cards ? 'cards' : 'dots', groups,
    width: all.length ? head.width + (room.x - 1) * (right - left) : head.width, height: all.length ? head.height + (room.y - 1) * (bottom - top) : head.height,
    nodes: all.map((c) => ({ key: c.name, x: left + (c.x - left) * room.x, y: top + (c.y - top) * room.y, angle: c.angle, cluster: c })),
    links: [...links.values()],
  };
}

/** Returns the factors by which to move cards apart, so that labels have space and the map has the aspect ratio of its canvas. The layout of hawser graph has no labels. */
function roomFor(all, head, aspect) {
  const least = { x: 1.4, y: 1.25 }, most = 3;
  const span = (of) => Math.max(...all.map(of)) - Math.min(...all.map(of));
  const w = span((c) => c.x), h = span((c) => c.y), besideW = head.width - w, besideH = head.height - h;
  const wide = (w * least.x + besideW) / (h * least.y + besideH);
  if (aspect > wide && w) return { x: Math.min(most, (aspect * (h * least.y + besideH) - besideW) / w), y: least.y };
  if (aspect && aspect < wide && h) return { x: least.x, y: Math.min(most, ((w * least.x + besideW) / aspect - besideH) / h) };
  return least;
}

const steps = {
  rtt: (l) => (l.rttMicroseconds ? 1 + [2e3, 2e4, 8e4, 2e5].filter((v) => l.rttMicroseconds >= v).length : 0),
  loss: (l) => (l.state ? 1 + [0.001, 0.01, 0.05, 0.2].filter((v) => (l.loss || 0) >= v).length : 0),
  traffic: (l) => (l.state ? 1 + [1e3, 1e5, 1e7, 1e8].filter((v) => (l.bytesPerSecond || 0) >= v).length : 0),
};
const meaning = {
  rtt: ['below 2 ms', '2-20 ms', '20-80 ms', '80-200 ms', 'more'],
  loss: ['none', 'from 0.1%', 'from 1%', 'from 5%', 'from 20%'],
  traffic: ['below 1 kB/s', 'from 1 kB/s', 'from 100 kB/s', 'from 10 MB/s', 'from 100 MB/s'],
};

const measured = (l) => [l.rttMicroseconds && millis(l.rttMicroseconds), l.loss > 0 && `${percent(l.loss)} lost`, l.bytesPerSecond > 0 && rate(l.bytesPerSecond)].filter(Boolean).join(', ');

function aboutLink(l) {
  const parts = [`${l.between[0]} - ${l.between[1]}`, l.driver, l.state, l.explained && 'a gateway is down', l.uses?.length && `over ${l.uses.join(' and ')}`, measured(l), l.count && plural(l.count, 'link')];
  return parts.filter(Boolean).join(', ');
}

function aboutCluster(c) {
  const down = gateways(c, 'down').map((g) => g.name);
  return [`cluster ${c.name}`, c.hub && 'hub', toneOf(c), troubleOf(c) || plural(c.gateways.length, 'gateway'), down.length && `down: ${down.join(' ')}`, plural(c.exports, 'export')].filter(Boolean).join(', ');
}

/** Returns the text of a state. The page of a cluster has no reports about other clusters' gateways. */
const said = (of) => ({ partly: 'has a problem', silent: 'agent does not answer', unknown: store.head.liveCluster ? 'not reported here' : 'unknown' }[of] ?? of);

/** Returns the whole view for printing: the picture and a table of the links. */
export function printed(page) {
  const view = open(h('div'), new URLSearchParams({ as: 'clusters' }), page), picture = view.svg();
  view.close();
  const links = [...store.links.values()].slice(0, 1000);
  return [h('h2', {}, 'Map'), picture, links.length ? table('Links', ['link', 'driver', 'state', 'in use', 'measured', 'pairs of gateways'], links.map((l) => [l.between.join(' - '), l.driver, l.state || '', (l.uses ?? []).join(' and '), measured(l),
    (l.pairs ?? []).map((p) => `${p.gateways[0]}-${p.gateways[1]} ${p.state}${p.reason ? `: ${p.reason}` : ''}`).join('; ')])) : ''];
}

export function open(main, query, page) {
  const find = h('input', { type: 'search', 'aria-label': 'Find a cluster', placeholder: 'find ( / )', input: () => page.set({ q: find.value.trim() }, true) });
  const color = h('select', { 'aria-label': 'Colour of links', change: () => page.set({ color: color.value }, true) },
    [['', 'state'], ['rtt', 'round-trip time'], ['loss', 'loss'], ['traffic', 'traffic']].map(([v, t]) => h('option', { value: v }, t)));
  const as = h('select', { 'aria-label': 'Groups or clusters', change: () => page.set({ as: as.value, group: '', focus: '' }) },
    [['', 'groups'], ['clusters', 'all clusters']].map(([v, t]) => h('option', { value: v }, t)));
  const only = h('button', { type: 'button', click: () => page.set({ focus: '', group: '', sel: '' }) }, 'show all');
  const zoom = (f, label, text) => h('button', { type: 'button', 'aria-label': label, click: () => zoomBy(f) }, text);
  const asLabel = h('label', {}, 'show', as);
  const list = h('div', { class: 'list', role: 'navigation', 'aria-label': 'Clusters', tabindex: 0 });
  const picture = s('svg', { class: 'picture', role: 'group', 'aria-label': 'Map of the clusterset' });
  const legend = h('p', { class: 'legend' }), hint = h('span', { class: 'faint' });
  const details = h('section', { class: 'details', 'aria-label': 'Details', hidden: true, tabindex: 0 });
  main.append(
    h('div', { class: 'bar' }, find, h('label', {}, 'links by', color), asLabel, only,
      zoom(0.8, 'Zoom in', '+'), zoom(1.25, 'Zoom out', '−'), h('button', { type: 'button', click: () => fit() }, 'fit'),
      hint),
    h('div', { class: 'map' }, list, h('div', { class: 'canvas' }, picture, legend), details));

  let view = {}, scene = null, box = null, nodes = new Map(), lines = new Map(), rows = new Map(), drawn = '', about = '', placed = [], aspect = 0;
  const back = s('g'), front = s('g'), labels = s('g', { 'aria-hidden': true });

  // Shows the whole picture. box is the visible part: x, y, width and height in units of the
  // picture.
  function fit() {
    const below = 34, w = scene.width, hh = scene.height + below; // the legend is below
    const k = Math.max(w / (picture.clientWidth || w), hh / (picture.clientHeight || hh));
    const grow = scene.kind === 'cards' ? Math.max(1, 1 / (k * CLOSEST)) : 1;
    box = [w / 2 - (w * grow) / 2, hh / 2 - (hh * grow) / 2, w * grow, hh * grow];
    look();
  }
  // Zooms to the search results, so that they are readable among many dots.
  function fitFound() {
    const found = scene.kind === 'dots' && view.q ? scene.nodes.filter((n) => matches(n.key)) : [];
    if (!found.length || found.length > 60) { fit(); return; }
    const xs = found.map((n) => n.x), ys = found.map((n) => n.y), room = 170;
    box = [Math.min(...xs) - room, Math.min(...ys) - room, Math.max(...xs) - Math.min(...xs) + 2 * room, Math.max(...ys) - Math.min(...ys) + 2 * room];
    look();
  }
  function look() {
    picture.setAttribute('viewBox', box.map((n) => n.toFixed(1)).join(' '));
    readable();
  }
  function zoomBy(f, x = box[0] + box[2] / 2, y = box[1] + box[3] / 2) {
    const w = Math.min(Math.max(box[2] * f, 120), scene.width * 2);
    f = w / box[2];
    box = [x - (x - box[0]) * f, y - (y - box[1]) * f, w, box[3] * f];
    look();
  }
  const scale = () => Math.min(picture.clientWidth / box[2], picture.clientHeight / box[3]) || 1;
  function at(e) {
    const p = new DOMPoint(e.clientX, e.clientY).matrixTransform(picture.getScreenCTM().inverse());
    return [p.x, p.y];
  }
  picture.addEventListener('wheel', (e) => { e.preventDefault(); zoomBy(e.deltaY > 0 ? 1.12 : 0.89, ...at(e)); }, { passive: false });
  let drag = null;
  picture.addEventListener('pointerdown', (e) => { drag = { x: e.clientX, y: e.clientY, box: [...box], moved: false }; });
  picture.addEventListener('pointermove', (e) => {
    if (!drag || !e.buttons) { drag = null; return; }
    const k = 1 / scale(), dx = e.clientX - drag.x, dy = e.clientY - drag.y;
    if (Math.abs(dx) + Math.abs(dy) > 4) drag.moved = true;
    if (drag.moved) { box = [drag.box[0] - dx * k, drag.box[1] - dy * k, drag.box[2], drag.box[3]]; look(); }
  });
  picture.addEventListener('click', (e) => {
    if (drag?.moved) { drag = null; return; }
    const g = e.target.closest('[data-key]');
    if (g) choose(g.dataset.kind, g.dataset.key);
  });
  picture.addEventListener('keydown', (e) => {
    const g = e.target.closest?.('g[tabindex]');
    if (!g) return;
    const keys = [...nodes.keys()], i = keys.indexOf(g.dataset.key);
    const to = { ArrowRight: i + 1, ArrowDown: i + 1, ArrowLeft: i - 1, ArrowUp: i - 1, Home: 0, End: keys.length - 1 }[e.key];
    if (to !== undefined) { e.preventDefault(); rove(keys[(to + keys.length) % keys.length], true); }
    if (e.key === 'Enter' || e.key === ' ') { e.preventDefault(); choose(g.dataset.kind, g.dataset.key); }
    if (e.key === '+' || e.key === '-') zoomBy(e.key === '+' ? 0.8 : 1.25);
    if (e.key === 'Escape') page.set({ sel: '', focus: '' });
  });
  function rove(key, focus) {
    for (const n of nodes.values()) n.g.setAttribute('tabindex', -1);
    const n = nodes.get(key) ?? nodes.values().next().value;
    n?.g.setAttribute('tabindex', 0);
    if (focus) n?.g.focus();
  }
  function choose(kind, key) {
    if (kind === 'group') page.set({ group: key, sel: '' });
    else page.set({ sel: `${kind}:${key}` });
  }

  // Shows names if there is space, and always for search results.
  function readable() {
    if (scene?.kind !== 'dots' || !box) return;
    const k = scale(), room = 26 * k >= 11;
    for (const n of nodes.values()) {
      const c = store.clusters.get(n.key);
      const marked = n.g.classList.contains('found') || n.g.classList.contains('sel') || c?.hub || ['down', 'silent', 'partly'].includes(c && toneOf(c));
      n.label.setAttribute('visibility', room || marked ? 'visible' : 'hidden');
      const size = room ? 12 : 12 / k;
      n.label.setAttribute('font-size', size);
      n.label.style.fontSize = `${size}px`;
      n.dot.setAttribute('r', Math.max(c?.hub ? 9 : 5, 3 / k));
    }
  }

  // The aspect ratio of the canvas. It only changes with the window: nothing moves when details
  // open.
  const shape = () => { aspect = picture.clientWidth && picture.clientHeight ? picture.clientWidth / (picture.clientHeight - 34) : 0; };

  // draw creates the whole picture; refresh updates it.
  function draw() {
    if (!aspect) shape();
    scene = sceneOf({ ...view, aspect });
    const focused = document.activeElement?.closest('g[data-key]')?.dataset.key;
    nodes = new Map(); lines = new Map(); placed = [];
    back.replaceChildren(); front.replaceChildren(); labels.replaceChildren();
    picture.replaceChildren(back, front, labels);
    for (const l of scene.links) line(l);
    for (const n of scene.nodes) {
      const made = n.members ? bubble(n) : scene.kind === 'cards' ? card(n) : spot(n);
      nodes.set(n.key, made);
      front.append(made.g);
    }
    // Keep the keyboard focus when the map is drawn again.
    rove(nodes.has(focused) ? focused : scene.nodes[0]?.key, nodes.has(focused));
    refresh();
    const key = [scene.kind, scene.width, scene.height, view.group].join(' ');
    if (key !== drawn) { drawn = key; fitFound(); } else look();
  }

  // Places for the label of a link: on the part of its line between the cards, without overlap with
  // a card or an earlier label. Lines of opposite clusters cross in the middle, so the search
  // starts off-centre.
  const LABEL = { w: 112, h: 34 };
  function labelPlace(a, b) {
    const meets = (p, boxes, w, h) => boxes.some((o) => Math.abs(o.x - p.x) < (w + LABEL.w) / 2 && Math.abs(o.y - p.y) < (h + LABEL.h) / 2);
    const free = [0, -0.1, 0.1, -0.2, 0.2, -0.3, 0.3].map((off) => ({ x: a.x + (b.x - a.x) * (0.5 + off), y: a.y + (b.y - a.y) * (0.5 + off) }))
      .filter((p) => !meets(p, scene.nodes, CARD.w + 4, CARD.h + 4));
    const spot = free.find((p) => !meets(p, placed, LABEL.w, LABEL.h)); // without space, only the details have the numbers
    if (spot) placed.push(spot);
    return spot;
  }

  const placeOf = (key) => scene.nodes.find((n) => n.key === key);
  function line(l) {
    const a = placeOf(l.between[0]), b = placeOf(l.between[1]);
    if (!a || !b) return;
    const kind = scene.kind === 'groups' ? 'groups' : 'link';
    const g = s('g', { 'data-kind': 'link', 'data-key': linkKey(l) });
    const stroke = s('line', { class: 'link', x1: a.x, y1: a.y, x2: b.x, y2: b.y });
    const hit = kind === 'link' && s('line', { class: 'hit', x1: a.x, y1: a.y, x2: b.x, y2: b.y });
    const title = s('title');
    const middle = scene.kind === 'cards' && labelPlace(a, b);
    const text = middle && s('text', { class: 'faint small middle', x: middle.x, y: middle.y }, s('tspan', { x: middle.x, dy: 0 }), s('tspan', { x: middle.x, dy: 13 }));
    const plate = middle && s('rect', { class: 'plate', rx: 4, height: 0, width: 0 });
    const label = middle && s('g', { class: 'label' }, plate, text);
    if (kind !== 'link') g.removeAttribute('data-kind');
    if (kind !== 'link') g.removeAttribute('data-key');
    g.append(...[title, stroke, hit].filter(Boolean));
    back.append(g);
    if (label) labels.append(label);
    lines.set(linkKey(l), { g, stroke, title, label, text, plate, middle });
  }

  function dressLine(l) {
    const made = lines.get(linkKey(l));
    if (!made) return;
    const step = view.color ? steps[view.color](l) : 0;
    const far = view.focus && !l.between.includes(view.focus);
    const selected = view.sel === `link:${linkKey(l)}`;
    const broken = l.explained ? (l.state === 'down' ? 'broken' : 'worn') : l.state;
    made.stroke.setAttribute('class', ['link', view.color && l.state !== 'down' ? '' : broken, step && `s${step}`, far && 'away'].filter(Boolean).join(' '));
    const thin = scene.kind === 'dots' && !view.focus ? 0.8 : 1.6;
    const width = thin + Math.min(Math.log10(1 + (l.bytesPerSecond || 0) / 1000) * 1.1, 6) + (l.state === 'down' && !l.explained ? 1.4 : 0) + (selected ? 2.5 : 0);
    made.stroke.setAttribute('stroke-width', width.toFixed(1));
    const text = aboutLink(l);
    if (made.title.textContent !== text) made.title.textContent = text;
    if (made.label) {
      const short = [[l.driver !== 'wireguard' && l.driver, l.rttMicroseconds && millis(l.rttMicroseconds)], [l.loss > 0 && `${percent(l.loss)} lost`, l.bytesPerSecond > 0 && rate(l.bytesPerSecond)]]
        .map((x) => x.filter(Boolean).join(', ')).filter(Boolean);
      const [first, second] = made.text.children;
      if (first.textContent !== (short[0] ?? '') || second.textContent !== (short[1] ?? '')) {
        first.textContent = short[0] ?? '';
        second.textContent = short[1] ?? '';
        // A background for the text, so that the line does not cross it.
        const w = short.length ? Math.max(...short.map((x) => x.length)) * 6.2 + 12 : 0, height = short.length ? 13 * short.length + 6 : 0;
        for (const [name, value] of Object.entries({ x: made.middle.x - w / 2, y: made.middle.y - height / 2, width: w, height })) made.plate.setAttribute(name, value.toFixed(1));
        made.text.setAttribute('y', (made.middle.y + (short.length > 1 ? -3 : 4)).toFixed(1));
        first.setAttribute('x', made.middle.x); second.setAttribute('x', made.middle.x);
      }
      made.label.classList.toggle('away', Boolean(far));
    }
  }

  const holder = (n, kind) => s('g', { 'data-kind': kind, 'data-key': n.key, tabindex: -1, role: 'button' });

  function bubble(n) {
    const g = holder(n, 'group');
    const r = 22 + Math.min(26, Math.sqrt(n.members.length) * 3);
    const dot = s('circle', { class: 'box', cx: n.x, cy: n.y, r });
    const count = s('text', { class: 'title middle', x: n.x, y: n.y + 5 }, n.members.length);
    const label = s('text', { class: 'middle halo', x: n.x, y: n.y + r + 16 }, cut(n.key, 20));
    const note = s('text', { class: 'faint small middle halo', x: n.x, y: n.y + r + 30 });
    g.append(dot, count, label, note);
    return { key: n.key, g, dot, note, members: n.members };
  }

  function card(n) {
    const c = n.cluster, x = n.x - CARD.w / 2, y = n.y - CARD.h / 2;
    const g = holder(n, 'cluster');
    const dot = s('rect', { class: 'box', x, y, width: CARD.w, height: CARD.h, rx: 8 });
    const marks = new Map(), note = s('text', { class: 'faint end', x: x + CARD.w - 12, y: y + 22 });
    g.append(dot,
      s('text', { class: 'title', x: x + 12, y: y + 22 }, cut(c.name + (c.hub ? ' (hub)' : ''), 15)),
      note,
      s('text', { class: 'faint', x: x + 12, y: y + 39 }, cut(`pods ${several(c.podCIDRs)}`, 32)),
      s('text', { class: 'faint', x: x + 12, y: y + 56 }, cut(c.globalCIDRs?.length ? `global ${several(c.globalCIDRs)}` : 'flat', 32)));
    c.gateways.slice(0, 4).forEach((w, i) => {
      const gx = x + 18 + i * 48, gy = y + CARD.h - 15;
      const mark = s('rect', { class: 'dot', x: gx - 5.5, y: gy - 5.5, width: 11, height: 11, rx: 5.5 }), name = s('text', { class: 'faint small', x: gx + 9, y: gy + 4 }, cut(w.name, 5));
      g.append(mark, name);
      marks.set(w.name, { mark, name });
    });
    if (c.gateways.length > 4) g.append(s('text', { class: 'faint small', x: x + 12 + 4 * 48, y: y + CARD.h - 11 }, `+${c.gateways.length - 4}`));
    return { key: n.key, g, dot, marks, note };
  }

  function spot(n) {
    const c = n.cluster, g = holder(n, 'cluster');
    const r = c.hub ? 9 : 5, left = Math.cos(n.angle) < 0;
    const dot = s('circle', { class: 'dot', cx: n.x, cy: n.y, r });
    const lx = n.x + (r + 6) * Math.cos(n.angle), ly = n.y + (r + 6) * Math.sin(n.angle) + 4;
    const rotation = ((n.angle * 180) / Math.PI + (left ? 180 : 0)) % 360;
    const label = c.hub
      ? s('text', { class: 'title middle halo', x: n.x, y: n.y - r - 5 }, cut(c.name, 20))
      : s('text', { class: `halo ${left ? 'end' : ''}`, x: lx, y: ly, transform: `rotate(${rotation.toFixed(1)} ${lx.toFixed(1)} ${ly.toFixed(1)})` }, cut(c.name, 20));
    g.append(dot, label);
    return { key: n.key, g, dot, label };
  }

  const matches = (name) => view.q && name.toLowerCase().includes(view.q.toLowerCase());
  const near = (name) => !view.focus || name === view.focus || store.head.meshImplied || store.links.has([name, view.focus].sort().join('/'));

  function dressNode(n) {
    let of, text, name = n.key;
    if (n.members) {
      const states = n.members.map((m) => { const c = store.clusters.get(m); return (c && toneOf(c)) || ''; });
      of = together(states);
      const bad = states.filter((x) => x && x !== 'up').length;
      n.note.textContent = bad ? `${bad} not up` : '';
      text = `group ${name}, ${plural(n.members.length, 'cluster')}, ${of || 'no state'}${bad ? `, ${bad} not up` : ''}`;
      n.g.classList.toggle('away', Boolean(view.q) && !n.members.some(matches));
    } else {
      const c = store.clusters.get(name);
      if (!c) return;
      of = toneOf(c);
      text = aboutCluster(c);
      for (const w of c.gateways) {
        const made = n.marks?.get(w.name);
        made?.mark.setAttribute('class', `dot ${w.state || ''}`);
        made?.mark.setAttribute('rx', { down: 0, partly: 2 }[w.state] ?? 5.5); // the shapes of the legend
        made?.name.setAttribute('class', `small ${{ down: 'bad bold', silent: 'fair bold' }[w.state] ?? 'faint'}`);
      }
      if (n.marks) {
        const trouble = troubleOf(c), words = trouble || plural(c.exports, 'export');
        if (n.note.textContent !== words) n.note.textContent = words;
        n.note.setAttribute('class', `end ${trouble ? `bold ${of === 'down' ? 'bad' : 'fair'}` : 'faint'}`);
      }
      n.g.classList.toggle('away', (Boolean(view.q) && !matches(name)) || !near(name));
      n.g.classList.toggle('found', Boolean(matches(name)) || view.focus === name);
      n.g.classList.toggle('sel', view.sel === `cluster:${name}` || view.focus === name);
    }
    n.dot.setAttribute('class', `${n.dot.classList.contains('dot') ? 'dot' : 'box'} ${of || ''}`);
    if (n.g.getAttribute('aria-label') !== text) n.g.setAttribute('aria-label', text);
  }

  function refresh() {
    for (const n of nodes.values()) dressNode(n);
    for (const l of scene.links) dressLine(scene.kind === 'groups' ? l : store.links.get(linkKey(l)) ?? l);
    spokes();
    legends();
    readable();
  }

  // In a mesh that is too large to list, only the links of the selected cluster are drawn.
  function spokes() {
    back.querySelectorAll('.spoke').forEach((e) => e.remove());
    if (!store.head.meshImplied || !view.focus || scene.kind === 'groups') return;
    const from = placeOf(view.focus);
    if (!from) return;
    for (const n of scene.nodes) {
      if (n.key !== view.focus && !store.links.has([n.key, view.focus].sort().join('/'))) {
        back.prepend(s('line', { class: `link spoke ${store.head.live ? 'up' : ''}`, x1: from.x, y1: from.y, x2: n.x, y2: n.y, 'stroke-width': 0.7 }));
      }
    }
  }

  function legends() {
    const items = [];
    if (view.color) meaning[view.color].forEach((text, i) => items.push([`s${i + 1}`, text]));
    else for (const of of ['up', 'partly', 'down', 'silent', 'unknown']) if ([...store.clusters.values()].some((c) => toneOf(c) === of || c.gateways.some((g) => g.state === of)) || [...store.links.values()].some((l) => l.state === of && !l.explained)) items.push([of, said(of)]);
    if (!view.color && [...store.links.values()].some((l) => l.explained)) items.push(['broken', 'link to a gateway that is down']);
    const parts = items.map(([c, text]) => h('span', {}, view.color ? s('svg', { class: 'picture', width: 18, height: 8, 'aria-hidden': true }, s('line', { class: `link ${c}`, x1: 0, y1: 4, x2: 18, y2: 4, 'stroke-width': 4 })) : state(c), ` ${text}`));
    if (store.head.meshImplied) parts.push(h('span', { class: 'faint' }, 'every two clusters are linked; drawn are the links that differ'));
    if (!store.head.live) parts.push(h('span', { class: 'faint' }, `no agent ${embedded ? 'was' : 'is'} asked: --live shows states`));
    const key = parts.map((p) => p.textContent).join('|') + view.color;
    if (legend.dataset.key !== key) { legend.dataset.key = key; legend.replaceChildren(...parts); }
  }

  function fillList() {
    rows = new Map();
    const ul = h('ul');
    const names = [...store.clusters.keys()].filter((n) => (!view.q || matches(n)) && (!view.group || scene.groups?.get(view.group)?.includes(n) || !scene.groups));
    for (const name of names) {
      const c = store.clusters.get(name), mark = state(toneOf(c));
      const a = h('a', { href: page.link('map', { ...settings(), focus: name, sel: `cluster:${name}` }), 'aria-current': view.focus === name ? 'true' : null }, mark, h('span', {}, name));
      rows.set(name, mark);
      ul.append(h('li', {}, a));
    }
    list.replaceChildren(h('p', { class: 'note' }, view.q || view.group ? `${names.length} of ${plural(store.clusters.size, 'cluster')}` : plural(names.length, 'cluster')), ul);
  }
  const settings = () => ({ q: view.q, color: view.color, as: view.as, group: view.group });

  // The details of the selection.
  async function detail() {
    const [kind, ...rest] = (view.sel || '').split(':'), key = rest.join(':');
    const close = h('button', { class: 'close', type: 'button', 'aria-label': 'Close details', click: () => page.set({ sel: '' }) }, '×');
    if (kind === 'link') {
      const l = store.links.get(key);
      details.hidden = !l;
      if (!l) return;
      const text = JSON.stringify(l);
      if (about === text) return;
      about = text;
      put(details, close, h('h2', {}, `Link ${l.between[0]} - ${l.between[1]}`),
        h('p', {}, state(l.state), ` ${said(l.state) || 'no agent is asked'}${l.explained ? ': a gateway is down' : ''}`),
        h('dl', {}, h('dt', {}, 'driver'), h('dd', {}, l.driver), h('dt', {}, 'carried by'), h('dd', {}, l.uses?.join(' and ') || 'not known'),
          h('dt', {}, 'measured'), h('dd', {}, measured(l) || 'nothing')),
        l.pairs?.length ? h('h3', {}, 'Pairs of gateways') : '',
        l.pairs?.length ? table('Pairs of gateways', ['pair', 'state', 'RTT', 'loss', 'traffic', 'reason'], l.pairs.map((p) => [
          h('span', { class: p.active ? 'good' : '' }, `${p.gateways[0]}-${p.gateways[1]}${p.active ? ' (in use)' : ''}`), h('span', {}, state(p.state), ` ${p.state}`),
          millis(p.rttMicroseconds), percent(p.loss || 0), rate(p.bytesPerSecond), p.reason || ''])) : '');
      return;
    }
    const c = store.clusters.get(key);
    details.hidden = kind !== 'cluster' || !c;
    if (details.hidden) { about = ''; return; }
    const text = JSON.stringify(c);
    if (about === text) return;
    about = text;
    const paths = h('div', {}, h('p', { class: 'faint' }, 'asking...'));
    put(details, close, h('h2', {}, `Cluster ${c.name}`),
      h('p', {}, state(toneOf(c)), ` ${said(toneOf(c)) || 'no agent is asked'}${troubleOf(c) ? `: ${troubleOf(c)}` : ''}${c.hub ? ', hub' : ''}`),
      h('p', {}, view.focus === c.name ? h('button', { type: 'button', click: () => page.set({ focus: '' }) }, 'show all links') : h('button', { type: 'button', click: () => page.set({ focus: c.name }) }, 'only its links'), ' ',
        h('a', { href: page.link('matrix', { q: c.name }) }, 'who reaches it')),
      h('dl', {}, h('dt', {}, 'pods'), h('dd', {}, c.podCIDRs.join(', ')), h('dt', {}, 'global'), h('dd', {}, c.globalCIDRs?.join(', ') || 'none: flat'),
        h('dt', {}, 'exports'), h('dd', {}, c.exports), c.source ? [h('dt', {}, 'topology'), h('dd', {}, place(c.source))] : []),
      h('h3', {}, 'Gateways'),
      table('Gateways', ['', 'name', 'node', 'endpoints'], c.gateways.map((g) => [state(g.state), g.name,
        store.head.live ? h('a', { href: page.link('node', { cluster: c.name, node: g.node }) }, g.node) : g.node, (g.endpoints ?? []).join(' ')])),
      c.nodes?.length ? [h('h3', {}, 'Agents'), h('ul', { class: 'plain' }, c.nodes.map((n) => h('li', {}, state(n.lastAnswer ? 'silent' : n.ready ? 'up' : 'partly'), ' ', h('a', { href: page.link('node', { cluster: c.name, node: n.name }) }, n.name),
        n.lastAnswer ? h('span', { class: 'bad' }, ` does not answer since ${time(n.lastAnswer)}`) : n.ready ? '' : ' not ready')))] : '',
      h('h3', {}, 'Paths to other clusters'), paths);
    try {
      const got = await ask(`api/cluster?name=${encodeURIComponent(c.name)}`);
      paths.replaceChildren(got.paths.length ? table('Paths', ['to', 'over', 'reason'], got.paths.slice(0, 300).map((w) => [w.to,
        [w.transit?.length ? h('span', {}, `through ${w.transit.join(', ')}; `) : '', w.link ? h('span', { class: 'key' }, w.link) : '', w.rank && w.rank !== 'good' ? h('span', { class: 'fair' }, ` ${w.rank}`) : ''],
        [w.reason || (w.reported ? '' : 'while all links live'), w.lastMove ? h('small', { class: 'faint' }, ` (moved ${w.lastMove})`) : '']])) : h('p', { class: 'faint' }, 'none'));
    } catch (err) { paths.replaceChildren(failed(err)); }
  }

  function update(q) {
    const was = view;
    view = Object.fromEntries(['q', 'color', 'as', 'group', 'focus', 'sel'].map((n) => [n, q.get(n) ?? '']));
    if (document.activeElement !== find) find.value = view.q;
    color.value = view.color; as.value = view.as;
    asLabel.hidden = store.clusters.size <= LARGE;
    only.hidden = !view.focus && !view.group;
    about = '';
    if (was.sel !== undefined && view.sel && was.sel !== view.sel && matchMedia('(max-width: 900px)').matches) queueMicrotask(() => details.scrollIntoView({ block: 'nearest' })); // they are below the map
    if (!scene || was.group !== view.group || was.as !== view.as || Boolean(was.focus) !== Boolean(view.focus) && scene.groups) draw(); else refresh();
    fillList();
    if ((was.q ?? '') !== view.q) fitFound(); else look();
    detail();
    hint.textContent = view.group ? `group ${view.group}` : '';
    if (view.q) { const hit = [...store.clusters.keys()].find(matches); if (hit) rove(hit, false); }
  }

  function changed(change) {
    const known = change.links.every((k) => lines.has(k)) && change.gone.every((k) => !lines.has(k));
    if (change.whole || scene?.kind === 'groups' && (change.links.length || change.clusters.length) || !known) { draw(); if (change.whole) update(page.where().query); } else {
      for (const name of change.clusters) { const n = nodes.get(name); if (n) dressNode(n); }
      for (const key of change.links) dressLine(store.links.get(key));
      if (change.clusters.length || change.links.length) { legends(); readable(); }
    }
    for (const name of change.clusters) { const mark = rows.get(name), c = store.clusters.get(name), of = (c && toneOf(c)) || ''; if (mark) { mark.className = `state ${of}`; mark.setAttribute('aria-label', of || 'no state'); } }
    if (change.clusters.length || change.links.length) detail();
  }

  update(query);
  const size = new ResizeObserver(() => { if (box) readable(); });
  size.observe(picture);
  const resized = () => { shape(); drawn = ''; draw(); };
  addEventListener('resize', resized);
  return {
    update, changed, close: () => { size.disconnect(); removeEventListener('resize', resized); },
    svg: () => { const whole = picture.cloneNode(true); whole.setAttribute('viewBox', `0 0 ${scene.width} ${scene.height}`); return whole; },
    json: () => ({ ...store.head, clusters: [...store.clusters.values()], links: [...store.links.values()] }),
  };
}

const several = (list) => (!list?.length ? 'none' : list.length === 1 ? list[0] : `${list[0]} +${list.length - 1}`);
