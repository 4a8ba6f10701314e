package ui

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"
)

// report writes the file of hawser report, and returns its name and its text.
func report(t *testing.T, topology string) (file, text string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "report.html")
	hawser(t, nil, "report", topology, "-o", file)
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return file, string(raw)
}

// requests records the requests of a tab.
func requests(ctx context.Context, t *testing.T) func() []string {
	t.Helper()
	var urls []string
	chromedp.ListenTarget(ctx, func(event any) {
		if e, ok := event.(*network.EventRequestWillBeSent); ok {
			urls = append(urls, e.Request.URL)
		}
	})
	run(ctx, t, network.Enable())
	return func() []string { return urls }
}

// TestReport tests that the file shows every view without a request, in all sizes and colours, and
// shows the name of its topology as text.
func TestReport(t *testing.T) {
	raw, err := os.ReadFile(filepath.Join(root, "docs/clusterset.full.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	// The path of the file contains </script><!-- and U+2028.
	dir := filepath.Join(t.TempDir(), "<", "script><!--<img src=x onerror=document.title=1>\u2028")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	topology := filepath.Join(dir, "clusterset.yaml")
	if err := os.WriteFile(topology, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	hawser(t, nil, "allocate", topology)
	file, text := report(t, topology)
	if strings.Count(text, "<!--") != 0 || strings.Count(text, "</script>") != 2 || strings.Contains(text, "\u2028") {
		t.Errorf("the name of the topology is not escaped in %s", file)
	}

	ctx := browser(t)
	made := requests(ctx, t)
	visit(ctx, t, "file://"+file)
	until(ctx, t, patience, drawn+" === 3")
	if n := eval[int](ctx, t, "document.querySelectorAll('img').length"); n != 0 {
		t.Error("the name of the topology became HTML")
	}
	if sources := eval[string](ctx, t, "document.getElementById('sources').textContent"); !strings.Contains(sources, "</script><!--<img") {
		t.Errorf("the page shows %q as its sources", sources)
	}
	shot(ctx, t, "report-map")
	accessible(ctx, t, "report")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?sel=cluster:g2'`, nil))
	until(ctx, t, patience, `document.querySelector('.details').textContent.includes('g2/g2-a-g3/g3-a')`)
	for _, view := range []string{"matrix", "findings", "node"} {
		run(ctx, t, chromedp.Evaluate("location.hash = '#/"+view+"'", nil))
		until(ctx, t, patience, `document.querySelector('nav a[aria-current]')?.dataset.view === '`+view+`'`)
		if view == "matrix" {
			run(ctx, t, chromedp.Evaluate(`document.querySelector('.matrix td button.yes').click()`, nil))
			until(ctx, t, patience, `document.querySelector('.side h3') && document.querySelector('.side').textContent.includes('clusterset.yaml:')`)
		}
		shot(ctx, t, "report-"+view)
		accessible(ctx, t, "report, "+view)
	}
	size(ctx, t, 390, 844, true)
	run(ctx, t, chromedp.Evaluate("location.hash = '#/map'", nil))
	until(ctx, t, patience, drawn+" === 3")
	shot(ctx, t, "report-narrow-dark")
	accessible(ctx, t, "report, narrow and dark")
	if wide := eval[bool](ctx, t, "document.documentElement.scrollWidth > innerWidth"); wide {
		t.Error("the report is wider than a narrow screen")
	}

	// A printed page has all views.
	size(ctx, t, 1000, 1400, false)
	run(ctx, t, chromedp.Evaluate(`dispatchEvent(new Event('beforeprint'))`, nil))
	const paper = `document.getElementById('paper')`
	until(ctx, t, patience, paper+`.querySelector('svg') && ['Map', 'Who reaches what', 'Findings', 'Versions', 'Verified'].every((title) => [...`+paper+`.querySelectorAll('h2')].some((h) => h.textContent === title))`)
	if said := eval[string](ctx, t, paper+".textContent"); !strings.Contains(said, "sample/whereami-cs") || !strings.Contains(said, "No agent was asked") {
		t.Errorf("the paper has %.300s", said)
	}
	run(ctx, t, emulation.SetEmulatedMedia().WithMedia("print"))
	until(ctx, t, patience, paper+".checkVisibility() && !document.querySelector('header').checkVisibility()")
	shot(ctx, t, "report-paper")
	run(ctx, t, emulation.SetEmulatedMedia())
	var pdf []byte
	run(ctx, t, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		pdf, _, err = page.PrintToPDF().WithPrintBackground(true).Do(ctx)
		return err
	}))
	if !bytes.HasPrefix(pdf, []byte("%PDF")) {
		t.Error("no PDF")
	}
	if err := os.WriteFile(filepath.Join(shots(t), "report.pdf"), pdf, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, url := range made() {
		if !strings.HasPrefix(url, "file://") || strings.Count(url, "report.html") != 1 {
			t.Errorf("the report requested %s", url)
		}
	}

	// The browser refuses a script that the content security policy does not list.
	evil := strings.Replace(text, "</body>", "<script>document.title = 'owned'</script></body>", 1)
	other := filepath.Join(t.TempDir(), "evil.html")
	if err := os.WriteFile(other, []byte(evil), 0o644); err != nil {
		t.Fatal(err)
	}
	strict, stop := chromedp.NewContext(ctx)
	defer stop()
	visit(strict, t, "file://"+other)
	until(strict, t, patience, drawn+" === 3")
	if title := eval[string](strict, t, "document.title"); title == "owned" {
		t.Error("a foreign script ran")
	}
}

// TestLabels tests that no label of a link overlaps a cluster's card or another label. No line
// crosses a label, and the cards fill the canvas.
func TestLabels(t *testing.T) {
	ctx := browser(t)
	link := regexp.MustCompile(`"driver":"wireguard"`)
	for _, clusters := range []int{2, 3, 5, 9, 16} {
		file, text := report(t, many(t, clusters))
		text = link.ReplaceAllString(text, `"driver":"ipsec","state":"up","rttMicroseconds":123400,"loss":0.125,"bytesPerSecond":123000000`)
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		for _, width := range []int64{1400, 900} {
			size(ctx, t, width, 900, false)
			visit(ctx, t, "about:blank")
			visit(ctx, t, "file://"+file)
			until(ctx, t, patience, fmt.Sprintf("%s === %d", drawn, clusters))
			got := mapOverlaps(ctx, t)
			got.check(t, fmt.Sprintf("%d clusters, %d pixels", clusters, width))
			if got.Labels == 0 || got.Filled < 0.6 {
				t.Errorf("%d clusters, %d pixels: no labels, or the map does not fill the page: %+v", clusters, width, got)
			}
		}
		shot(ctx, t, fmt.Sprintf("labels-%d", clusters))
	}
}

// TestTracesFile tests that a file with only traces shows where packets ended, also in print.
func TestTracesFile(t *testing.T) {
	file, text := report(t, filepath.Join(root, "docs/clusterset.full.yaml"))
	const hidden = `"hiddenViews":["change","trace","explain","follow"]`
	const traces = `"hiddenViews":["map","matrix","findings","change","node","explain","follow"],"traces":{"traces":[{"outcome":"dropped",` +
		`"first":{"cluster":"g1","node":"g1-gw","flow":{"ingress":{"protocol":"tcp","from":"10.7.2.5","to":"243.0.0.1:80"},"egress":{},"packets":3}}}],` +
		`"nodes":[{"cluster":"g1","node":"g1-gw","packets":3,"passed":0,"seconds":10,"findings":[{"location":"rule <b>","text":"dropped by Calico","next":"admit it","packets":3}]}],` +
		`"unreachable":[{"agent":"g2","error":"gone"}],"drawings":[{"width":300,"height":100,"about":"one path","bands":[{"x":5,"y":5,"w":200,"h":90}],` +
		`"lines":[{"x1":20,"y1":10,"x2":20,"y2":40,"tone":"bad","arrow":true}],"boxes":[{"x":10,"y":40,"w":180,"h":40,"tone":"bad"}],` +
		`"texts":[{"x":20,"y":60,"size":12,"tone":"bad","anchor":"start","text":"ended at rule <b>"}]}]}`
	if !strings.Contains(text, hidden) {
		t.Fatal("the file hides other views")
	}
	if err := os.WriteFile(file, []byte(strings.Replace(text, hidden, traces, 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := browser(t)
	visit(ctx, t, "file://"+file)
	until(ctx, t, patience, `document.querySelector('.lanes rect.bad.box') && document.querySelector('.lanes polygon.bad.tip') && document.querySelectorAll('#tabs a').length === 1`)
	if said := eval[string](ctx, t, "document.getElementById('main').textContent"); !strings.Contains(said, "3 packets of the clusterset followed on 1 node in 10 s.") ||
		!strings.Contains(said, "ended at rule <b>") || !strings.Contains(said, "no answer") || !strings.Contains(said, "admit it") {
		t.Errorf("the page has %.600s", said)
	}
	shot(ctx, t, "report-traces")
	accessible(ctx, t, "traces")
	run(ctx, t, chromedp.Evaluate(`dispatchEvent(new Event('beforeprint'))`, nil))
	until(ctx, t, patience, `document.querySelector('#paper rect.bad.box')`)
}

// TestHostileHeadline tests that names of nodes and texts of agents are text in the headline, in
// the title and in links.
func TestHostileHeadline(t *testing.T) {
	file, text := report(t, filepath.Join(root, "docs/clusterset.full.yaml"))
	const none = `"problems":[]`
	if strings.Count(text, none) != 1 {
		t.Fatalf("%d headlines", strings.Count(text, none))
	}
	const evil = `\u003c/script\u003e\u003cimg src=x onerror=document.title=1\u003e\u202e\" onclick=\"document.title=2`
	problem := fmt.Sprintf(`{"severity":"error\" onclick=\"x","subject":"%[1]s","text":"%[1]s","note":"%[1]s","detail":"%[1]s","since":"%[1]s","cluster":"%[1]s","node":"%[1]s"}`, evil)
	link := fmt.Sprintf(`{"severity":"warning","subject":"javascript:alert(1)","text":"","link":["%[1]s","javascript:alert(1)"]}`, evil)
	if err := os.WriteFile(file, []byte(strings.Replace(text, none, `"problems":[`+problem+","+link+"]", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx := browser(t)
	visit(ctx, t, "file://"+file)
	until(ctx, t, patience, `document.querySelectorAll('#headline .problem').length === 2`)
	got := eval[struct {
		Text, Title string
		Elements    int
		Handlers    int
		Links       []string
	}](ctx, t, `(() => { const h = document.getElementById('headline'); return { Text: h.textContent, Title: document.title, Elements: document.querySelectorAll('img').length,
		Handlers: [...h.querySelectorAll('*')].filter((e) => e.getAttributeNames().some((n) => n.startsWith('on'))).length, Links: [...h.querySelectorAll('a')].map((a) => a.getAttribute('href')) }; })()`)
	if !strings.Contains(got.Text, "</script><img src=x onerror=document.title=1>") || strings.ContainsAny(got.Text, "\u202e") || got.Elements+got.Handlers > 0 || !strings.HasPrefix(got.Title, "(2) Map") {
		t.Errorf("the headline has %+v", got)
	}
	for _, href := range got.Links {
		if !strings.HasPrefix(href, "#/") {
			t.Errorf("a link leads to %s", href)
		}
	}
	shot(ctx, t, "headline-hostile")
	accessible(ctx, t, "headline")
}
