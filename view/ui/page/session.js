// The session: the token of the URL that hawser ui prints, sent as a header of each request.
// sessionStorage belongs to one origin, and so to one port; browsers would send a cookie to every
// port of this machine.

// A file of hawser report has no session: its snapshot is in the page.

const snapshot = document.getElementById('snapshot');

/** The snapshot of a report file, as hawser report -o json prints it; null on the page of hawser ui. */
export const embedded = snapshot ? JSON.parse(snapshot.textContent) : null;

const name = 'hawser-token';
const header = 'Hawser-Token';
const replyTimeout = 300; // ms, for other tabs of this page

let tabs = null; // of this origin only
let token = '';

/** Returns the token of another tab that shows this page; empty if no tab responds. */
function tokenOfTabs() {
  return new Promise((resolve) => {
    tabs.addEventListener('message', (e) => { if (typeof e.data?.token === 'string') resolve(e.data.token); });
    setTimeout(() => resolve(''), replyTimeout);
    tabs.postMessage('request');
  });
}

/** Reads the token from the URL, from this tab or from another tab, and removes it from the URL. */
export async function start() {
  tabs = new BroadcastChannel(name);
  tabs.addEventListener('message', (e) => { if (e.data === 'request' && token) tabs.postMessage({ token }); });
  const given = new URLSearchParams(location.hash.slice(1)).get('token');
  if (given) history.replaceState(null, '', location.pathname);
  token = given || sessionStorage.getItem(name) || await tokenOfTabs();
  if (token) sessionStorage.setItem(name, token);
}

/** fetch with the token. An ingress may add its own token, so the header is sent only if the token is known. */
export function request(path, options = {}) {
  return fetch(path, { ...options, headers: { ...options.headers, ...(token && { [header]: token }) } });
}
