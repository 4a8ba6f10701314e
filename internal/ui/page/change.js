import { empty } from './dom.js';
export function open(main) { main.append(empty('nothing yet')); return { update() {}, svg() { return null; }, json() { return {}; } }; }
