package ui

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
)

// labEnv starts the lab of testdata and returns the environment of its commands.
func labEnv(t *testing.T) []string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a lab needs root")
	}
	dir, err := os.MkdirTemp("", "ui") // the path of a unix socket has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	env := []string{"HAWSER_LAB_DIR=" + filepath.Join(dir, "lab")}
	t.Cleanup(func() {
		cmd := exec.Command(program(t, "hawser"), "lab", "down")
		cmd.Env = append(os.Environ(), env...)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("hawser lab down: %v\n%s", err, out)
		}
	})
	hawser(t, env, "lab", "up", "-f", "testdata/clusterset.yaml", "-w", filepath.Join(root, "workloads"))
	return env
}

// headline is the script that returns the text of the headline.
const headline = `document.getElementById('headline').textContent`

// gallery saves a screenshot of every view in a state, in three widths, light and dark, if
// UI_GALLERY is set. People review the screenshots.
func gallery(ctx context.Context, t *testing.T, state string) {
	t.Helper()
	if os.Getenv("UI_GALLERY") == "" {
		return
	}
	for _, view := range [][2]string{
		{"map", "#/map"}, {"cluster", "#/map?sel=cluster:g2"}, {"link", "#/map?sel=link:g1/g2"}, {"node", "#/node?cluster=g2&node=g2-gw2"},
		{"matrix", "#/matrix?sel=sample/whereami-cs@g1"}, {"findings", "#/findings"}, {"change", "#/change"}, {"trace", "#/trace?from=g1/default/client&to=whereami-cs.sample"},
	} {
		run(ctx, t, chromedp.Evaluate(fmt.Sprintf("location.hash = %q", view[1]), nil))
		until(ctx, t, patience, `document.querySelector('main').textContent.length > 20 && !/asking\.\.\.|comparing\.\.\./.test(document.querySelector('main').textContent)`)
		for _, width := range []int64{1400, 900, 390} {
			for _, scheme := range []string{"light", "dark"} {
				size(ctx, t, width, map[int64]int64{1400: 900, 900: 900, 390: 844}[width], scheme == "dark")
				until(ctx, t, patience, fmt.Sprintf("innerWidth === %d && matchMedia('(prefers-color-scheme: %s)').matches", width, scheme))
				run(ctx, t, chromedp.Evaluate(`new Promise((done) => requestAnimationFrame(() => setTimeout(done, 300)))`, nil))
				shot(ctx, t, fmt.Sprintf("%s-%s-%d-%s", state, view[0], width, scheme))
				if wide := eval[bool](ctx, t, "document.documentElement.scrollWidth > innerWidth"); wide {
					t.Errorf("%s: %s is wider than %d pixels", state, view[0], width)
				}
			}
		}
	}
	size(ctx, t, 1280, 800, false)
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map'`, nil))
}

// soon returns the time limit for the page to show a new state.
func soon() time.Duration { return time.Duration(2 * slow() * float64(time.Second)) }

// within waits for a condition, and fails the test if that takes longer than soon.
func within(ctx context.Context, t *testing.T, what, condition string) {
	t.Helper()
	took := until(ctx, t, patience, condition)
	t.Logf("%s after %s", what, took)
	if took > soon() {
		t.Errorf("%s after %s, want %s at most", what, took, soon())
	}
}

// TestStates tests that only the cause has a colour and that the headline names it. The headline
// also names silent agents within two seconds, while others are silent.
func TestStates(t *testing.T) {
	env := labEnv(t)
	url, process := serveProcess(t, env, "--live")
	ctx := browser(t)
	visit(ctx, t, url)
	const well = `document.querySelectorAll('.canvas .box.up').length === 3 && document.querySelectorAll('.canvas line.link.up').length === 3 &&
		` + headline + `.includes('No problem reported: 7 of 7 agents answer, 3 of 3 links are up')`
	until(ctx, t, patience, well)
	// The map does not count probes as traffic.
	until(ctx, t, patience, `document.querySelector('.canvas g.label')?.textContent.includes('ms') && ![...document.querySelectorAll('.canvas g.label')].some((e) => e.textContent.includes('B/s'))`)
	mapOverlaps(ctx, t).check(t, "all well")
	accessible(ctx, t, "all well")
	gallery(ctx, t, "well")

	// The only gateway of a cluster fails: its card is red, and other cards do not change.
	hawser(t, env, "lab", "fault", "kill-gateway", "g3/g3-gw")
	within(ctx, t, "a dead gateway is red", `[...document.querySelectorAll('.canvas .box.down')].map((e) => e.parentNode.dataset.key).join() === 'g3' && document.querySelectorAll('.canvas .box.up').length === 2`)
	until(ctx, t, patience, `/^g3\/g3-gw does not answer since \d\d:\d\d:\d\dZ \(\d+ s ago\): gateway a is down/.test(`+headline+`) && `+headline+`.includes('no agent listens at')`)
	until(ctx, t, patience, `document.querySelector('.canvas g[data-key=g3]').textContent.includes('0 of 1 gateway') && document.querySelectorAll('.canvas line.link.broken').length === 2 && document.querySelectorAll('.canvas line.link.down').length === 0`)
	mapOverlaps(ctx, t).check(t, "a dead gateway")
	accessible(ctx, t, "a dead gateway")
	run(ctx, t, chromedp.Evaluate(`document.querySelector('#headline a').click()`, nil))
	until(ctx, t, patience, `location.hash.includes('node=g3-gw') && /does not answer. Below is its last report, of \d{4}-\d\d-\d\dT[\d:]{8}Z \(\d+ s ago\)/.test(document.querySelector('.stale')?.textContent)`)
	accessible(ctx, t, "an old report")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map'`, nil))
	hawser(t, env, "lab", "fault", "start-agent", "g3/g3-gw")
	until(ctx, t, patience, well)

	// One of two gateways fails.
	hawser(t, env, "lab", "fault", "kill-gateway", "g2/g2-gw2")
	within(ctx, t, "one of two gateways is red", `[...document.querySelectorAll('.canvas .box.down')].map((e) => e.parentNode.dataset.key).join() === 'g2' && document.querySelectorAll('.canvas .dot.down').length === 1`)
	until(ctx, t, patience, `document.querySelector('.canvas g[data-key=g2]').textContent.includes('1 of 2 gateways') && document.querySelectorAll('.canvas line.link.worn').length === 2`)
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map?sel=cluster:g2'`, nil))
	until(ctx, t, patience, `document.querySelector('.details').textContent.includes('down: 1 of 2 gateways') && document.querySelectorAll('.details table').length === 2`)
	if broken := eval[[]string](ctx, t, `[...document.querySelectorAll('.details .key')].filter((e) => { const r = document.createRange(); r.selectNodeContents(e); return r.getBoundingClientRect().height > 32; }).map((e) => e.textContent)`); len(broken) > 0 {
		t.Errorf("names are broken into lines: %q", broken)
	}
	gallery(ctx, t, "dead")
	run(ctx, t, chromedp.Evaluate(`location.hash = '#/map'`, nil))
	hawser(t, env, "lab", "fault", "start-agent", "g2/g2-gw2")
	until(ctx, t, patience, well)

	// An agent is silent, then a second one too.
	hawser(t, env, "lab", "fault", "freeze-agent", "g1/g1-w1")
	within(ctx, t, "the first silent agent is named", `/^g1\/g1-w1 does not answer since [\d:]{8}Z \(\d+ s ago\)no answer within/.test(`+headline+`)`)
	until(ctx, t, patience, `document.querySelectorAll('.canvas .box.silent').length === 1 && document.querySelector('.canvas g[data-key=g1]').textContent.includes('1 agent silent')`)
	accessible(ctx, t, "a silent agent")
	gallery(ctx, t, "silent")
	hawser(t, env, "lab", "fault", "freeze-agent", "g2/g2-w1")
	within(ctx, t, "the second silent agent is named", headline+`.includes('g2/g2-w1 does not answer since')`)
	hawser(t, env, "lab", "fault", "kill-gateway", "g3/g3-gw")
	within(ctx, t, "a gateway is red while two agents are silent", `document.querySelectorAll('.canvas .box.down').length === 1 && `+headline+`.includes('g3/g3-gw does not answer since')`)
	hawser(t, env, "lab", "fault", "start-agent", "g3/g3-gw")

	// All agents are silent.
	for _, node := range []string{"g1/g1-gw", "g2/g2-gw", "g2/g2-gw2", "g3/g3-gw", "g3/g3-w1"} {
		until(ctx, t, patience, fmt.Sprintf(`!%s.includes('%s')`, headline, node))
		hawser(t, env, "lab", "fault", "freeze-agent", node)
	}
	until(ctx, t, patience, `/^No agent answers since [\d:]{8}Z \(\d+ s ago\): the states of clusters and links are unknown/.test(`+headline+`) && document.querySelectorAll('.canvas .up').length === 0`)
	accessible(ctx, t, "all agents are silent")
	gallery(ctx, t, "all-silent")

	// A page that is opened now shows no state as known.
	late, stop := chromedp.NewContext(ctx)
	defer stop()
	visit(late, t, url)
	until(late, t, patience, headline+`.startsWith('No agent answers since') && document.querySelectorAll('.canvas .box.silent').length === 3`)
	for _, node := range []string{"g1/g1-gw", "g1/g1-w1", "g2/g2-gw", "g2/g2-gw2", "g2/g2-w1", "g3/g3-gw", "g3/g3-w1"} {
		hawser(t, env, "lab", "fault", "thaw-agent", node)
	}
	until(ctx, t, patience, well)

	// The server of the page does not respond.
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = process.Signal(syscall.SIGCONT) })
	until(ctx, t, patience, `/^hawser ui does not answer since [\d:]{8}Z \(\d+ s ago\): all of this page is as old as that/.test(`+headline+`) && document.body.classList.contains('old')`)
	shot(ctx, t, "cut-off-map")
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	until(ctx, t, patience, well+` && !document.body.classList.contains('old')`)
}
