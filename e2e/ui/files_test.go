package ui

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const drawn = `document.querySelectorAll('.canvas g[tabindex]').length`

// TestFiles tests the map of a topology without live agents, in all sizes and colours, also with
// the keyboard.
func TestFiles(t *testing.T) {
	url := serve(t, nil, filepath.Join(root, "docs/clusterset.full.yaml"))
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, drawn+" === 3")
	for name, text := range map[string]string{"URL": eval[string](ctx, t, "location.href"), "cookies": eval[string](ctx, t, "document.cookie")} {
		if strings.Contains(text, "token") || name == "cookies" && text != "" {
			t.Errorf("the session is in the %s: %s", name, text)
		}
	}
	shot(ctx, t, "map-files")
	accessible(ctx, t, "map")
	size(ctx, t, 1280, 800, true)
	shot(ctx, t, "map-files-dark")
	accessible(ctx, t, "map, dark")
	size(ctx, t, 390, 844, false)
	shot(ctx, t, "map-files-narrow")
	if wide := eval[bool](ctx, t, "document.documentElement.scrollWidth > innerWidth"); wide {
		t.Error("the page is wider than a narrow screen")
	}
	size(ctx, t, 1280, 800, false)
	// Select the next cluster with the keyboard, and move into its details. A redrawn map keeps
	// the focus.
	run(ctx, t, chromedp.Evaluate(`document.querySelector('.canvas g[tabindex="0"]').focus(); dispatchEvent(new Event('resize'))`, nil), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
	until(ctx, t, patience, `document.querySelector('.details h2')?.textContent === 'Cluster g2' && location.hash.includes('cluster%3Ag2')`)
	until(ctx, t, patience, `document.querySelector('.details').textContent.includes('g2/g2-a-g3/g3-a')`)
	shot(ctx, t, "map-details")
	accessible(ctx, t, "details")
	svg := eval[string](ctx, t, `new Promise((done) => {
		const make = URL.createObjectURL;
		URL.createObjectURL = (blob) => { blob.text().then(done); return make(blob); };
		document.getElementById('save-svg').click();
	})`)
	if !strings.Contains(svg, "<svg") || !strings.Contains(svg, "g3") || !strings.Contains(svg, "--good") {
		t.Errorf("the download is no picture of the map: %.200s", svg)
	}

	for _, view := range []string{"matrix", "findings", "change", "trace", "node"} {
		run(ctx, t, chromedp.Evaluate("location.hash = '#/"+view+"'", nil))
		until(ctx, t, patience, `document.querySelector('nav a[aria-current]')?.dataset.view === '`+view+`'`)
		if view == "matrix" {
			until(ctx, t, patience, `document.querySelectorAll('.matrix td button').length > 2`)
			run(ctx, t, chromedp.Evaluate(`document.querySelector('.matrix td button.yes').click()`, nil))
			until(ctx, t, patience, `document.querySelector('.side h3')`)
		}
		if view == "trace" {
			run(ctx, t, chromedp.Evaluate(`location.hash = '#/trace?from=g1&to=sample/whereami-cs'`, nil))
			until(ctx, t, patience, `document.querySelector('.lanes svg')`)
		}
		shot(ctx, t, view+"-files")
		accessible(ctx, t, view)
	}
}

// TestSession tests that the session survives a reload and reaches other tabs of the page, but no
// other port of this machine.
func TestSession(t *testing.T) {
	address := serve(t, nil, filepath.Join(root, "docs/clusterset.full.yaml"))
	start, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	token, origin := strings.TrimPrefix(start.Fragment, "token="), "http://"+start.Host
	var mu sync.Mutex
	var heard []string
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		heard = append(heard, fmt.Sprint(r.URL, r.Header))
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<title>other</title>"))
	}))
	defer other.Close()

	ctx := browser(t)
	visit(ctx, t, address)
	until(ctx, t, patience, drawn+" === 3")
	run(ctx, t, chromedp.Reload())
	until(ctx, t, patience, drawn+" === 3")

	second, stop := chromedp.NewContext(ctx) // a tab opened without the token
	defer stop()
	visit(second, t, origin+"/#/matrix")
	until(second, t, patience, `document.querySelectorAll('.matrix td button').length > 2`)

	third, end := chromedp.NewContext(ctx)
	defer end()
	visit(third, t, other.URL)
	until(third, t, patience, `document.title === 'other'`)
	stolen := eval[string](third, t, `new Promise((done) => {
		const found = [document.cookie, ...Object.values(sessionStorage), ...Object.values(localStorage)];
		const tabs = new BroadcastChannel('hawser-token');
		tabs.onmessage = (e) => found.push(JSON.stringify(e.data));
		tabs.postMessage('request');
		fetch('`+origin+`/api/map', { credentials: 'include' }).then((r) => r.text()).then((text) => found.push(text)).catch(() => {})
			.finally(() => setTimeout(() => done(found.join('')), 500));
	})`)
	mu.Lock()
	defer mu.Unlock()
	if len(heard) == 0 || stolen != "" || strings.Contains(strings.Join(heard, ""), token) || strings.Contains(strings.Join(heard, ""), "Cookie") {
		t.Errorf("another port received %q, its script read %q", heard, stolen)
	}

	// Another server at the same address has another token. The page then shows how to open it.
	visit(second, t, origin+"/?#token=another")
	until(second, t, patience, `document.getElementById('trouble').textContent.includes('open the URL that hawser ui printed')`)
	visit(second, t, address)
	until(second, t, patience, drawn+" === 3")
}

// TestThousand tests that the first picture of a thousand clusters is small: ten groups, without
// requests for each cluster.
func TestThousand(t *testing.T) {
	url := serve(t, nil, many(t, 1000))
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, drawn+" === 10")
	elements := eval[int](ctx, t, `document.querySelectorAll('.canvas *').length`)
	requests := eval[int](ctx, t, `performance.getEntriesByType('resource').filter((e) => e.name.includes('/api/')).length`)
	t.Logf("the first picture has %d elements, after %d requests", elements, requests)
	if elements > 400 || requests > 10 {
		t.Errorf("the first picture has %d elements, after %d requests; want 400 and 10 at most", elements, requests)
	}
	shot(ctx, t, "map-1000")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?as=clusters&q=fra-5'`, nil))
	until(ctx, t, patience, drawn+" === 1000")
	shot(ctx, t, "map-1000-found")
	accessible(ctx, t, "1,000 clusters")
}

// TestTwoPublications tests that any two publications can be compared, also by keyboard, and that
// the URL alone restores the comparison.
func TestTwoPublications(t *testing.T) {
	dir := t.TempDir()
	script := func(text string) {
		t.Helper()
		cmd := exec.Command("bash", "-ec", text)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program(t, "hawser"))+":"+os.Getenv("PATH"), "GIT_AUTHOR_NAME=t", "GIT_AUTHOR_EMAIL=t@t", "GIT_COMMITTER_NAME=t", "GIT_COMMITTER_EMAIL=t@t")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	script("git init -q -b main . && hawser keys root ../" + filepath.Base(dir) + ".root")
	t.Cleanup(func() { _ = os.Remove(dir + ".root") })
	for n := 2; n <= 4; n++ {
		raw, err := os.ReadFile(many(t, n))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "clusterset.yaml"), raw, 0o644); err != nil {
			t.Fatal(err)
		}
		script(fmt.Sprintf("hawser allocate && git add clusterset.* && git commit -q -m '%d clusters' && hawser reconcile --once --root-key %s.root", n, dir))
	}
	ctx := browser(t)
	visit(ctx, t, serve(t, nil, filepath.Join(dir, "clusterset.yaml")))
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/change'`, nil))
	const from, to = `document.querySelector('select[aria-label="Compare from"]')`, `document.querySelector('select[aria-label="Compare to"]')`
	until(ctx, t, patience, from+".options.length === 5 && "+to+".options.length === 4")
	// Choose the oldest and the newest by keyboard: the list starts with the newest publication.
	run(ctx, t, chromedp.Evaluate(from+".focus()", nil), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown), chromedp.KeyEvent(kb.ArrowDown))
	until(ctx, t, patience, `location.hash.includes('from=')`)
	run(ctx, t, chromedp.Evaluate(to+".focus()", nil), chromedp.KeyEvent(kb.ArrowDown))
	const shown = `document.querySelector('section[aria-label=Plan]').textContent`
	until(ctx, t, patience, shown+`.includes('From ') && `+shown+`.includes('cluster cdg-002') && `+shown+`.includes('cluster dub-003')`)
	shot(ctx, t, "change-two")
	accessible(ctx, t, "two publications")
	at := eval[string](ctx, t, "location.href")
	visit(ctx, t, "about:blank")
	visit(ctx, t, at)
	until(ctx, t, patience, shown+`.includes('cluster dub-003') && `+from+`.selectedIndex === 3 && `+to+`.selectedIndex === 1`)
	// The page refuses a commit that was not published, with a message.
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/change?from=main&to='`, nil))
	until(ctx, t, patience, shown+`.includes('is not among the last 3 publications')`)
	run(ctx, t, chromedp.Evaluate(`document.querySelectorAll('.times a')[2].click()`, nil))
	until(ctx, t, patience, shown+`.startsWith('Commit ') && `+shown+`.includes('cluster cdg-002') && !`+shown+`.includes('cluster dub-003')`)
}

// TestThreeHundred tests that the map shows first groups, then one group, then one cluster.
func TestThreeHundred(t *testing.T) {
	url := serve(t, nil, many(t, 300))
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, drawn+" === 10")
	shot(ctx, t, "map-300")
	run(ctx, t, chromedp.Evaluate(`document.querySelector('.canvas g[data-key=fra]').dispatchEvent(new MouseEvent('click', {bubbles: true}))`, nil))
	until(ctx, t, patience, drawn+" === 30")
	shot(ctx, t, "map-300-group")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?focus=fra-005&sel=cluster:fra-005'`, nil))
	until(ctx, t, patience, drawn+` === 300 && document.querySelectorAll('.spoke').length === 299`)
	until(ctx, t, patience, `document.querySelector('.details').textContent.includes('hub') || document.querySelectorAll('.details table')[1]?.rows.length > 200`)
	shot(ctx, t, "map-300-focus")
	accessible(ctx, t, "300 clusters")
}

// TestNewTopology tests that a changed file changes the map, and that a wrong file shows an error.
func TestNewTopology(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/clusterset.full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "clusterset.yaml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(string(raw))
	ctx := browser(t)
	visit(ctx, t, serve(t, nil, file))
	until(ctx, t, patience, drawn+" === 3")
	write(string(raw) + "  what: <img src=x onerror=alert(1)>\n")
	until(ctx, t, patience, `!document.getElementById('trouble').hidden`)
	if n := eval[int](ctx, t, "document.querySelectorAll('img').length"); n != 0 {
		t.Error("a text of the topology became HTML")
	}
	shot(ctx, t, "map-wrong")
	write(string(raw))
	until(ctx, t, patience, `document.getElementById('trouble').hidden`)
}

// slow returns the factor for time limits on this machine: UI_SLOW=3.
func slow() float64 {
	if d, err := time.ParseDuration(os.Getenv("UI_SLOW") + "s"); err == nil && d > 0 {
		return d.Seconds()
	}
	return 1
}
