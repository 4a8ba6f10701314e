package ui

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// TestLab tests every view of a running clusterset: a gateway that fails, a link that traffic
// leaves, and a commit whose text is HTML.
func TestLab(t *testing.T) {
	env := labEnv(t)
	repo := strings.TrimSpace(hawser(t, env, "lab", "repo"))
	url := serve(t, env, "--live")
	ctx := browser(t)
	visit(ctx, t, url)
	until(ctx, t, patience, `document.querySelectorAll('.canvas .box.up').length === 3 && document.querySelectorAll('.canvas line.link.up').length === 3`)
	until(ctx, t, patience, `document.querySelector('.canvas g.label')?.textContent.includes('ms')`)
	shot(ctx, t, "lab-map")
	accessible(ctx, t, "live map")

	// The active link between two clusters, and its change after its gateway fails.
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?sel=link:g1/g2'`, nil))
	until(ctx, t, patience, `document.querySelector('.details')?.textContent.includes('(in use)')`)
	shot(ctx, t, "lab-link")
	used := eval[string](ctx, t, `[...document.querySelectorAll('.details td')].find((e) => e.textContent.includes('(in use)')).textContent`)
	gateway, node := "a", "g2/g2-gw"
	if strings.Contains(used, "-b") {
		gateway, node = "b", "g2/g2-gw2"
	}
	before := eval[string](ctx, t, `[...document.querySelectorAll('.canvas g[data-kind=cluster] rect')].map((r) => r.getAttribute('x') + ',' + r.getAttribute('y')).join(' ')`)
	hawser(t, env, "lab", "fault", "kill-gateway", node)
	took := until(ctx, t, patience, `document.querySelectorAll('.canvas .dot.down').length === 1`)
	t.Logf("gateway %s of g2 is red after %s", gateway, took)
	if limit := time.Duration(2 * slow() * float64(time.Second)); took > limit {
		t.Errorf("the gateway is red after %s, want %s at most", took, limit)
	}
	until(ctx, t, patience, `(() => { const u = [...document.querySelectorAll('.details td')].find((e) => e.textContent.includes('(in use)')); return u && !u.textContent.includes('`+strings.Split(used, " ")[0]+`'); })()`)
	shot(ctx, t, "lab-gateway-down")
	if after := eval[string](ctx, t, `[...document.querySelectorAll('.canvas g[data-kind=cluster] rect')].map((r) => r.getAttribute('x') + ',' + r.getAttribute('y')).join(' ')`); after != before {
		t.Errorf("clusters jumped from %s to %s", before, after)
	}
	hawser(t, env, "lab", "fault", "start-agent", node)
	until(ctx, t, patience, `document.querySelectorAll('.canvas .dot.down').length === 0 && document.querySelectorAll('.canvas .box.up').length === 3`)

	// The matrix shows which clusters reach which exports.
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/matrix?sel=sample/whereami-cs@g3'`, nil))
	until(ctx, t, patience, `document.querySelectorAll('.matrix td button.yes').length === 2 && document.querySelectorAll('.matrix td button.no').length === 1`)
	until(ctx, t, patience, `document.querySelector('.side').textContent.includes('allow') && document.querySelector('.side').textContent.includes('clusterset.yaml:')`)
	shot(ctx, t, "lab-matrix")
	accessible(ctx, t, "live matrix")

	// The page of one agent.
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/node?cluster=g1&node=g1-gw'`, nil))
	until(ctx, t, patience, `document.body.textContent.includes('last round') && document.querySelectorAll('table').length >= 2`)
	shot(ctx, t, "lab-node")
	accessible(ctx, t, "node")

	// The path, and traced packets on it.
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/trace?from=g1/default/client&to=whereami-cs.sample'`, nil))
	until(ctx, t, patience, `document.querySelector('.lanes svg') && document.querySelector('h2 .good')`)
	run(ctx, t, chromedp.Evaluate(`[...document.querySelectorAll('.bar button')].find((b) => b.textContent === 'Follow packets').click()`, nil))
	asking := exec.Command(program(t, "hawser"), "lab", "exec", "g1/default/client", "--", "sh", "-c",
		"for i in $(seq 8); do curl -s -m 1 -o /dev/null whereami-cs.sample.svc.clusterset.local; sleep .5; done")
	asking.Env = append(os.Environ(), env...)
	if out, err := asking.CombinedOutput(); err != nil {
		t.Errorf("requests: %v\n%s", err, out)
	}
	until(ctx, t, patience, `document.querySelectorAll('.lanes svg').length > 1`)
	shot(ctx, t, "lab-trace")
	accessible(ctx, t, "trace")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/trace?from=g3&to=whereami-cs.sample'`, nil))
	until(ctx, t, patience, `document.querySelector('h2 .bad') && document.querySelector('.lanes .bad.box')`)
	shot(ctx, t, "lab-trace-no")

	// The page shows HTML in a commit's subject as text. The plan lists the changes.
	file := filepath.Join(repo, "clusterset.yaml")
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(strings.Replace(string(raw), "clusters: [g1, g2]}", "clusters: [g1, g2, g3]}", 1)), 0o644); err != nil {
		t.Fatal(err)
	}
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/change'`, nil))
	until(ctx, t, patience, `document.querySelectorAll('tbody tr').length > 0 && document.body.textContent.includes('allow')`)
	shot(ctx, t, "lab-change")
	accessible(ctx, t, "change")
	if out, err := exec.Command("git", "-C", repo, "-c", "user.name=<b>eve</b>", "-c", "user.email=e@e", "commit", "-qam", "<img src=x onerror=document.title='owned'> let g3 in").CombinedOutput(); err != nil {
		t.Fatalf("git commit: %v\n%s", err, out)
	}
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map'`, nil))
	until(ctx, t, patience, `(() => { if (location.hash !== '#/change') { location.hash = '#/change'; return false; } if (document.querySelector('.times')?.textContent.includes('<img')) return true; location.hash = '#/map'; return false; })()`)
	if n := eval[int](ctx, t, `document.querySelectorAll('main img, main b').length`); n != 0 {
		t.Error("the subject or the author of a commit became HTML")
	}
	run(ctx, t, chromedp.Evaluate(`document.querySelectorAll('.times a')[1].click()`, nil))
	until(ctx, t, patience, `document.querySelector('section[aria-label=Plan] h2')?.textContent.startsWith('Commit') && document.querySelectorAll('tbody tr').length > 0`)
	shot(ctx, t, "lab-history")
}
