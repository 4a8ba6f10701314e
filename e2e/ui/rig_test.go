package ui

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// patience is the timeout for short waits on a busy machine.
const patience = 30 * time.Second

const root = "../.."

// program returns the path of a built program.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(root, "bin", name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Fatalf("%v (make build)", err)
	}
	return path
}

// hawser runs the program, and fails the test if it fails.
func hawser(t *testing.T, env []string, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program(t, "hawser"), args...)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("hawser %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// serve starts hawser ui and returns its URL.
func serve(t *testing.T, env []string, args ...string) string {
	t.Helper()
	url, _ := serveProcess(t, env, args...)
	return url
}

// serveProcess starts hawser ui and returns its URL and its process.
func serveProcess(t *testing.T, env []string, args ...string) (string, *os.Process) {
	t.Helper()
	cmd := exec.Command(program(t, "hawser"), append([]string{"ui"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		if err := cmd.Wait(); err != nil {
			t.Errorf("hawser ui: %v", err)
		}
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("hawser ui printed no URL: %v", err)
	}
	return strings.TrimSpace(line), cmd.Process
}

// browser starts a browser. The test fails on errors that the page logs.
func browser(t *testing.T) context.Context {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium (hack/setup-ui.sh)")
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(path), chromedp.UserDataDir(profile(t)), chromedp.WindowSize(1280, 800), chromedp.WSURLReadTimeout(2 * time.Minute),
	}
	for _, name := range []string{
		"headless", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run", "disable-background-networking", "disable-component-update",
		"disable-sync", "hide-scrollbars", "disable-dev-shm-usage",
	} {
		options = append(options, chromedp.Flag(name, true))
	}
	ctx, cancel := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, stop := chromedp.NewContext(ctx)
	t.Cleanup(func() { stop(); cancel() })
	chromedp.ListenTarget(ctx, func(event any) {
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			t.Errorf("the page: %s", e.ExceptionDetails.Error())
		case *cdplog.EventEntryAdded:
			if e.Entry.Level == cdplog.LevelError && !strings.Contains(e.Entry.Text, "status of 4") && !strings.Contains(e.Entry.Text, "status of 502") {
				t.Errorf("the page: %s %s", e.Entry.Text, e.Entry.URL)
			}
		}
	})
	run(ctx, t, cdplog.Enable())
	return ctx
}

// profile creates a profile directory for a browser. The browser's processes may still write there
// after its end, so removal may need several attempts.
func profile(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "ui-profile")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := os.RemoveAll(dir)
		for begun := time.Now(); err != nil && time.Since(begun) < patience; err = os.RemoveAll(dir) {
			time.Sleep(20 * time.Millisecond)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return dir
}

func run(ctx context.Context, t *testing.T, actions ...chromedp.Action) {
	t.Helper()
	if err := chromedp.Run(ctx, actions...); err != nil {
		t.Fatal(err)
	}
}

// visit opens a URL of the page.
func visit(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	run(ctx, t, chromedp.Navigate(url))
}

// eval returns the result of a script.
func eval[T any](ctx context.Context, t *testing.T, script string) T {
	t.Helper()
	var out T
	run(ctx, t, chromedp.Evaluate(script, &out, func(p *runtime.EvaluateParams) *runtime.EvaluateParams { return p.WithAwaitPromise(true) }))
	return out
}

// until waits until a condition in the page is true, and returns the duration.
func until(ctx context.Context, t *testing.T, most time.Duration, condition string) time.Duration {
	t.Helper()
	begun := time.Now()
	for {
		var holds bool
		if err := chromedp.Run(ctx, chromedp.Evaluate("Boolean("+condition+")", &holds)); err == nil && holds {
			return time.Since(begun)
		}
		if time.Since(begun) > most {
			shot(ctx, t, "failed-"+strings.ReplaceAll(t.Name(), "/", "-"))
			t.Fatalf("condition not true after %s: %s\ntext of the page: %s", most, condition, eval[string](ctx, t, "document.body.innerText.slice(0, 1500)"))
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// shots returns the directory for screenshots.
func shots(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("UI_SHOTS")
	if dir == "" {
		dir = filepath.Join(root, "bin", "ui-shots")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// shot saves a screenshot of the page.
func shot(ctx context.Context, t *testing.T, name string) {
	t.Helper()
	var raw []byte
	run(ctx, t, chromedp.ActionFunc(func(ctx context.Context) (err error) {
		raw, err = page.CaptureScreenshot().Do(ctx)
		return err
	}))
	if err := os.WriteFile(filepath.Join(shots(t), name+".png"), raw, 0o644); err != nil {
		t.Fatal(err)
	}
}

// overlaps counts the boxes of a map that overlap or do not fit.
type overlaps struct {
	Labels, OverCards, OverLabels, StruckThrough int
	Filled                                       float64 // the part of the canvas that the cards span, of its longer side
}

// mapOverlaps returns the overlaps of the map, computed from bounding boxes.
func mapOverlaps(ctx context.Context, t *testing.T) overlaps {
	t.Helper()
	return eval[overlaps](ctx, t, `(() => {
		const box = (e) => e.getBoundingClientRect(), meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
		const inside = (a, b) => a.left >= b.left - 1 && a.right <= b.right + 1 && a.top >= b.top - 1 && a.bottom <= b.bottom + 1;
		const groups = [...document.querySelectorAll('.canvas svg g.label')].filter((e) => e.textContent);
		const labels = groups.map((e) => box(e.querySelector('text'))), cards = [...document.querySelectorAll('.canvas rect.box')].map(box);
		const canvas = box(document.querySelector('.canvas > svg'));
		const span = (a, b) => Math.max(...cards.map((c) => c[b])) - Math.min(...cards.map((c) => c[a]));
		return { Labels: labels.length, OverCards: labels.filter((l) => cards.some((c) => meet(l, c))).length,
			OverLabels: labels.filter((l, i) => labels.some((o, k) => k < i && meet(l, o))).length,
			StruckThrough: groups.filter((e) => !inside(box(e.querySelector('text')), box(e.querySelector('rect')))).length,
			Filled: Math.max(span('left', 'right') / canvas.width, span('top', 'bottom') / canvas.height) };
	})()`)
}

// check reports overlaps as errors of a test.
func (o overlaps) check(t *testing.T, name string) {
	t.Helper()
	t.Logf("%s: %+v", name, o)
	if o.OverCards > 0 || o.OverLabels > 0 || o.StruckThrough > 0 {
		t.Errorf("%s: labels overlap: %+v", name, o)
	}
}

// size sets the size of the window, and its color scheme.
func size(ctx context.Context, t *testing.T, width, height int64, dark bool) {
	t.Helper()
	scheme := "light"
	if dark {
		scheme = "dark"
	}
	run(ctx, t, emulation.SetDeviceMetricsOverride(width, height, 1, false),
		emulation.SetEmulatedMedia().WithFeatures([]*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}))
}

// accessible checks the page with axe-core. The debugger runs the script, so the
// page's content security policy does not apply.
func accessible(ctx context.Context, t *testing.T, what string) {
	t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		out, err := exec.Command(filepath.Join(root, "hack", "setup-ui.sh")).Output()
		if err != nil {
			t.Fatalf("hack/setup-ui.sh: %v", err)
		}
		file = strings.TrimSpace(string(out))
	}
	script, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	run(ctx, t, chromedp.Evaluate(string(script)+"; true", nil))
	var found []struct {
		ID, Impact, Help string
		Nodes            []struct{ HTML, FailureSummary string }
	}
	text := eval[string](ctx, t, `axe.run(document, {resultTypes: ['violations']}).then((r) => JSON.stringify(r.violations.map((v) => ({ID: v.id, Impact: v.impact, Help: v.help,
		Nodes: v.nodes.slice(0, 3).map((n) => ({HTML: n.html, FailureSummary: n.failureSummary}))}))))`)
	if err := json.Unmarshal([]byte(text), &found); err != nil {
		t.Fatal(err)
	}
	for _, v := range found {
		if v.Impact == "serious" || v.Impact == "critical" {
			t.Errorf("%s: %s (%s): %s\n%v", what, v.ID, v.Impact, v.Help, v.Nodes)
		}
	}
}

// many writes a topology with a number of clusters, and returns its file.
func many(t *testing.T, clusters int) string {
	t.Helper()
	var out strings.Builder
	out.WriteString("apiVersion: hawser.dev/v1alpha1\nkind: ClusterSet\nmetadata:\n  name: many\nspec:\n  globalnet:\n    cidr: 242.0.0.0/8\n  clusters:\n")
	regions := []string{"ams", "bom", "cdg", "dub", "eze", "fra", "gru", "hkg", "iad", "jnb"}
	for i := range clusters {
		fmt.Fprintf(&out, "  - name: %s-%03d\n", regions[i%len(regions)], i)
		fmt.Fprintf(&out, "    podCIDRs: [10.%d.%d.0/24]\n    serviceCIDRs: [172.%d.%d.0/24]\n    globalnet: always\n    recipient: age1lr68929mj5ruklx8rh9mlp6z4cjtesjcqcdpfm6wwmhm8g20ndcqv40250\n    gateways:\n    - {name: a, node: gw, endpoints: [198.18.%d.%d]}\n",
			i/250, i%250, 16+i/250, i%250, i/250, 1+i%250)
	}
	file := filepath.Join(t.TempDir(), "clusterset.yaml")
	if err := os.WriteFile(file, []byte(out.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return file
}
