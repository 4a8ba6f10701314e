package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// watchedKey is the key of a scenario's watched.
type watchedKey struct{}

// watched is a scenario with a Prometheus.
type watched struct {
	address  string          // address of the Prometheus
	answered map[string]bool // queries that answered
}

func watchedOf(ts *testscript.TestScript) *watched { return ts.Value(watchedKey{}).(*watched) }

// scrapeEvery is the scrape interval of a scenario's Prometheus, and rateOver the range of its rates.
const (
	scrapeEvery = 2 * time.Second
	rateOver    = 30 * time.Second
)

// prometheus starts a Prometheus that scrapes the agents and the reconciler of the lab. They listen
// in their own namespaces, so Prometheus scrapes a server of this test, which queries them.
func prometheus(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 0 {
		ts.Fatalf("usage: prometheus")
	}
	program, err := exec.LookPath("prometheus")
	if err != nil {
		ts.Fatalf("needs prometheus (make setup)")
	}
	nodes := filepath.Join(ts.Getenv("HAWSER_LAB_DIR"), "nodes")
	list, err := os.ReadDir(nodes)
	ts.Check(err)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /reconciler", func(w http.ResponseWriter, _ *http.Request) {
		// The reconciler may have restarted.
		out, err := output(ts, []string{"sh", "-c", `nsenter -t "$(hawser lab status -o json | jq .reconciler.pid)" -n curl -sf -m 5 http://127.0.0.1:8473/metrics`})
		if err != nil {
			http.Error(w, out, http.StatusBadGateway)
			return
		}
		_, _ = io.WriteString(w, out)
	})
	jobs := []string{"reconciler"}
	for _, node := range list {
		socket := filepath.Join(nodes, node.Name(), "run", "agent.sock")
		client := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socket)
		}}}
		mux.HandleFunc("GET /"+node.Name(), func(w http.ResponseWriter, r *http.Request) {
			req, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://agent/metrics", nil)
			var answer *http.Response
			if err == nil {
				answer, err = client.Do(req)
			}
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			defer func() { _ = answer.Body.Close() }()
			w.Header().Set("Content-Type", answer.Header.Get("Content-Type"))
			_, _ = io.Copy(w, answer.Body)
		})
		jobs = append(jobs, node.Name())
	}
	through := httptest.NewServer(mux)
	ts.Defer(through.Close)

	config := fmt.Sprintf("global: {scrape_interval: %s, scrape_timeout: %s}\nscrape_configs:\n", scrapeEvery, scrapeEvery)
	for _, job := range jobs {
		config += fmt.Sprintf("- {job_name: %s, metrics_path: /%s, static_configs: [{targets: [%s]}]}\n", job, job, strings.TrimPrefix(through.URL, "http://"))
	}
	dir := ts.MkAbs("prometheus")
	ts.Check(os.MkdirAll(dir, 0o755))
	ts.Check(os.WriteFile(filepath.Join(dir, "prometheus.yml"), []byte(config), 0o644))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	address := listener.Addr().String()
	ts.Check(listener.Close())
	log, err := os.Create(filepath.Join(dir, "log"))
	ts.Check(err)
	cmd := exec.Command(program, "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--log.level=warn")
	cmd.Stdout, cmd.Stderr = log, log
	ts.Check(cmd.Start())
	ts.Defer(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = log.Close()
	})
	watchedOf(ts).address = address
	for end := time.Now().Add(30 * time.Second * patience()); ; time.Sleep(poll) {
		if _, err = query(address, "vector(1)"); err == nil {
			return
		}
		if time.Now().After(end) {
			raw, _ := os.ReadFile(filepath.Join(dir, "log"))
			ts.Fatalf("prometheus does not answer: %v\n%s", err, raw)
		}
	}
}

// panel is one query of the dashboard.
type panel struct{ title, expr, legend string }

// dashboard runs the queries of the dashboard as Grafana does:
//
//	dashboard data LIMIT [--but] TITLE...      each query has data within LIMIT
//	dashboard positive LIMIT TITLE...          each query has a value above 0 within LIMIT;
//	                                           --userspace: if tunnels are processes
//	dashboard complete                         every query of the dashboard has had an answer
func dashboard(ts *testscript.TestScript, neg bool, args []string) {
	all := panels(ts)
	answered := watchedOf(ts).answered
	if !neg && len(args) == 1 && args[0] == "complete" {
		for _, p := range all {
			if !answered[p.expr] {
				ts.Fatalf("%s never answered: %s", p.title, p.expr)
			}
		}
		ts.Logf("%d queries answered", len(all))
		return
	}
	if neg || len(args) < 3 || args[0] != "data" && args[0] != "positive" {
		ts.Fatalf("usage: dashboard data|positive LIMIT [--but] TITLE...; dashboard complete")
	}
	limit, err := time.ParseDuration(args[1])
	ts.Check(err)
	titles, but := args[2:], false
	if titles[0] == "--userspace" {
		titles = titles[1:]
		out, err := output(ts, []string{"hawser", "show", "connections"})
		ts.Check(err)
		if !strings.Contains(out, "(userspace)") {
			ts.Logf("not asked, as the kernel has WireGuard: %s", strings.Join(titles, ", "))
			for _, p := range all {
				answered[p.expr] = answered[p.expr] || slices.Contains(titles, p.title)
			}
			return
		}
	}
	if titles[0] == "--but" {
		titles, but = titles[1:], true
	}
	for _, title := range titles {
		if !slices.ContainsFunc(all, func(p panel) bool { return p.title == title }) {
			ts.Fatalf("the dashboard has no panel %q", title)
		}
	}
	end := time.Now().Add(limit * patience())
	for _, p := range all {
		if slices.Contains(titles, p.title) == but {
			continue
		}
		for ; ; time.Sleep(10 * poll) {
			wrong := p.runQueries(watchedOf(ts).address, args[0] == "positive")
			if wrong == "" {
				answered[p.expr] = true
				break
			}
			if time.Now().After(end) {
				ts.Fatalf("not within %s: %s: %s\n%s", limit, p.title, wrong, p.expr)
			}
		}
	}
}

var legendLabel = regexp.MustCompile(`\{\{ ?([a-z_]+) ?\}\}`)

// runQueries runs the panel's queries, and returns the problem of an answer.
func (p panel) runQueries(address string, positive bool) string {
	expr := strings.NewReplacer("$cluster", ".*", "$__rate_interval", rateOver.String()).Replace(p.expr)
	list, err := query(address, expr)
	if err != nil {
		return err.Error()
	}
	most := math.Inf(-1)
	for _, s := range list {
		if !math.IsNaN(s.value) {
			most = max(most, s.value)
		}
		for _, l := range legendLabel.FindAllStringSubmatch(p.legend, -1) {
			if s.labels[l[1]] == "" {
				return fmt.Sprintf("the legend says %s, and %v has none", l[1], s.labels)
			}
		}
	}
	switch {
	case math.IsInf(most, -1):
		return fmt.Sprintf("no data in %d results", len(list))
	case positive && most <= 0:
		return fmt.Sprintf("the most is %g", most)
	}
	return ""
}

// panels returns the queries of the dashboard.
func panels(ts *testscript.TestScript) []panel {
	type row struct {
		Title   string `json:"title"`
		Panels  []json.RawMessage
		Targets []struct {
			Expr   string `json:"expr"`
			Legend string `json:"legendFormat"`
		} `json:"targets"`
	}
	var out []panel
	var walk func(raw []byte)
	walk = func(raw []byte) {
		var r row
		ts.Check(json.Unmarshal(raw, &r))
		for _, t := range r.Targets {
			out = append(out, panel{r.Title, t.Expr, t.Legend})
		}
		for _, below := range r.Panels {
			walk(below)
		}
	}
	raw, err := os.ReadFile(filepath.Join(ts.Getenv("ROOT"), "examples", "monitoring", "dashboard.json"))
	ts.Check(err)
	walk(raw)
	if len(out) == 0 {
		ts.Fatalf("the dashboard has no queries")
	}
	return out
}

type sampleOf struct {
	labels map[string]string
	value  float64
}

// query runs a query on a Prometheus and returns the samples.
func query(address, expr string) ([]sampleOf, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + address + "/api/v1/query?" + url.Values{"query": {expr}}.Encode())
	if err != nil {
		return nil, err
	}
	defer func() { _ = answer.Body.Close() }()
	var said struct {
		Status, Error string
		Data          struct {
			Result []struct {
				Metric map[string]string `json:"metric"`
				Value  [2]any            `json:"value"`
			} `json:"result"`
		}
	}
	if err := json.NewDecoder(answer.Body).Decode(&said); err != nil {
		return nil, fmt.Errorf("read the answer: %w", err)
	}
	if said.Status != "success" {
		return nil, fmt.Errorf("prometheus refuses %s: %s", expr, said.Error)
	}
	var out []sampleOf
	for _, r := range said.Data.Result {
		text, _ := r.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return nil, fmt.Errorf("a value: %w", err)
		}
		out = append(out, sampleOf{maps.Clone(r.Metric), value})
	}
	return out, nil
}
