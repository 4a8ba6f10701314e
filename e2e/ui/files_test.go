package ui

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const drawn = `document.querySelectorAll('.canvas g[tabindex]').length`

// TestFiles: the map of a topology alone, in all sizes and colours, by keyboard too.
func TestFiles(t *testing.T) {
	url := serve(t, nil, filepath.Join(root, "docs/clusterset.full.yaml"))
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, drawn+" === 3")
	if at := eval[string](ctx, t, "location.href"); strings.Contains(at, "token") {
		t.Errorf("the token stays in the URL: %s", at)
	}
	if cookie := eval[string](ctx, t, "document.cookie"); cookie != "" {
		t.Errorf("scripts can read the cookie: %s", cookie)
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
	// By keyboard: to the next cluster, and into its details.
	run(ctx, t, chromedp.Evaluate(`document.querySelector('.canvas g[tabindex="0"]').focus()`, nil), chromedp.KeyEvent(kb.ArrowRight), chromedp.KeyEvent(kb.Enter))
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

	for _, view := range []string{"matrix", "change", "trace", "node"} {
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

// TestThousand: a thousand clusters are on the screen within a second.
func TestThousand(t *testing.T) {
	url := serve(t, nil, many(t, 1000))
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, drawn+" > 9")
	// From the navigation to the picture, as the browser counts it.
	took := eval[float64](ctx, t, `new Promise((done) => requestAnimationFrame(() => done(performance.now())))`)
	first := eval[float64](ctx, t, `performance.getEntriesByName('first picture')[0]?.startTime ?? -1`)
	t.Logf("first picture after %.0f ms (asked at %.0f ms)", first, took)
	if limit := 1000 * slow(); first < 0 || first > limit {
		t.Errorf("the first picture came after %.0f ms, want %.0f at most", first, limit)
	}
	shot(ctx, t, "map-1000")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?as=clusters&q=fra-5'`, nil))
	until(ctx, t, patience, drawn+" === 1000")
	shot(ctx, t, "map-1000-found")
	accessible(ctx, t, "1,000 clusters")
}

// TestWorld: clusters on a map of the world, as cards, as dots and in groups; light and dark,
// by keyboard, and a thousand within a second.
func TestWorld(t *testing.T) {
	for _, tt := range []struct {
		name              string
		clusters, without int
		nodes             int
	}{{"cards", 4, 1, 4}, {"dots", 40, 3, 40}, {"groups", 300, 5, 10}, {"thousand", 1000, 0, 10}} {
		t.Run(tt.name, func(t *testing.T) {
			ctx := browser(t)
			visit(ctx, t, serve(t, nil, around(t, tt.clusters, tt.without)))
			until(ctx, t, patience, fmt.Sprintf("%s === %d", drawn, tt.nodes))
			first := eval[float64](ctx, t, `new Promise((done) => requestAnimationFrame(() => done(performance.getEntriesByName('first picture')[0]?.startTime ?? -1)))`)
			t.Logf("first picture after %.0f ms", first)
			if limit := 1000 * slow(); first < 0 || first > limit {
				t.Errorf("the first picture came after %.0f ms, want %.0f at most", first, limit)
			}
			until(ctx, t, patience, `document.querySelector('.canvas .sea') && document.querySelector('.canvas .land').getBBox().width > 100`)
			if said := eval[bool](ctx, t, `document.querySelector('.canvas').textContent.includes('without a location')`); said != (tt.without > 0 && tt.clusters <= 64) {
				t.Errorf("it is said that clusters have no location: %v", said)
			}
			shot(ctx, t, "world-"+tt.name)
			accessible(ctx, t, tt.name)
			size(ctx, t, 1280, 800, true)
			shot(ctx, t, "world-"+tt.name+"-dark")
			accessible(ctx, t, tt.name+", dark")
			// By keyboard: into the last one.
			run(ctx, t, chromedp.Evaluate(`document.querySelector('.canvas g[tabindex="0"]').focus()`, nil), chromedp.KeyEvent(kb.End), chromedp.KeyEvent(kb.Enter))
			if tt.clusters > 64 {
				until(ctx, t, patience, fmt.Sprintf("%s === %d && document.querySelector('.canvas .land')", drawn, tt.clusters/10))
				shot(ctx, t, "world-"+tt.name+"-group")
				accessible(ctx, t, "a group of "+tt.name)
				return
			}
			until(ctx, t, patience, `/[NS], .*[EW]/.test(document.querySelector('.details').textContent)`)
			if about := eval[string](ctx, t, `document.activeElement.getAttribute('aria-label')`); !strings.Contains(about, "°") {
				t.Errorf("a screen reader says %q", about)
			}
		})
	}
}

// TestThreeHundred: groups first, then one of them, then one cluster.
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

// TestNewTopology: a file that changes is another map, and one that is wrong is said so.
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

// slow is by how much times may be longer here: UI_SLOW=3.
func slow() float64 {
	if d, err := time.ParseDuration(os.Getenv("UI_SLOW") + "s"); err == nil && d > 0 {
		return d.Seconds()
	}
	return 1
}
