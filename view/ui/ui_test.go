package ui

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/packettrace"
)

// fake is a source of two clusters, whose agents say what a test wants.
type fake struct {
	mu       sync.Mutex
	set      *Clusterset
	reports  Reports
	err      error
	queries  int
	diagnose int
}

func newFake(clusters ...string) *fake {
	f := &fabric.Fabric{Name: "demo", Domain: "clusterset.local", Tunnel: fabric.TunnelDefaults{Driver: fabric.DriverWireguard}}
	for _, name := range clusters {
		f.Clusters = append(f.Clusters, fabric.Cluster{Name: name, Gateways: []fabric.Gateway{{Name: "a", Node: name + "-gw"}}})
	}
	return &fake{set: &Clusterset{Fabric: f, File: "clusterset.yaml", PositionOf: func(path string) string { return "clusterset.yaml:1 " + path }}}
}

func (f *fake) Clusterset(context.Context) (*Clusterset, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.set, f.err
}

func (f *fake) Agents(context.Context) (Reports, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.queries++
	return f.reports, nil
}

func (f *fake) setReports(r Reports) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reports = r
}

func (f *fake) History(context.Context) (any, error) { return nil, errors.New("git is gone") }
func (f *fake) Plan(_ context.Context, from, _ string) (any, error) {
	return nil, UserError("no commit " + from)
}
func (f *fake) Explain(context.Context, string, string) (any, error) {
	return map[string]string{"reason": "<script>alert(1)</script>"}, nil
}
func (f *fake) Diagnose(context.Context, time.Duration, []string, []string) (*packettrace.Report, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.diagnose++
	return packettrace.NewReport(nil, nil), nil
}

// agentOf is the report of a gateway with a link to another.
func agentOf(cluster, other, state string, bytes int64) status.Status {
	return status.Status{Cluster: cluster, Node: cluster + "-gw", Gateway: "a", Ready: true, Connections: []status.Connection{{
		Gateway: "a", RemoteCluster: other, RemoteGateway: "a", Status: state, Active: true, RxBytes: bytes, RTT: &status.RTT{Avg: 1200},
	}}}
}

type testSite struct {
	t      *testing.T
	server *Server
	at     *httptest.Server
	client *http.Client
}

// openSite serves a page, and returns a client that sends its token.
func openSite(t *testing.T, source Source) *testSite {
	t.Helper()
	return openWith(t, Config{Source: source})
}

func openWith(t *testing.T, config Config) *testSite {
	t.Helper()
	config.Interval, config.Log = 100*time.Millisecond, slog.New(slog.DiscardHandler)
	server := New(config)
	ctx, cancel := context.WithCancel(t.Context())
	at := httptest.NewUnstartedServer(server.Handler())
	at.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	at.Start()
	done := make(chan struct{})
	go func() { defer close(done); server.publisher.run(ctx) }()
	t.Cleanup(func() { cancel(); at.CloseClientConnections(); at.Close(); <-done })
	s := &testSite{t: t, server: server, at: at, client: &http.Client{Transport: withToken(server.token)}}
	resp, body := s.get(server.URL(at.URL), nil)
	if resp.StatusCode != http.StatusOK || !strings.Contains(body, "<title>Hawser</title>") {
		t.Fatalf("the page: %s", resp.Status)
	}
	return s
}

// withToken is a transport that adds the token as the page does.
type withToken string

func (w withToken) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set(tokenHeader, string(w))
	return http.DefaultTransport.RoundTrip(r)
}

func (s *testSite) do(client *http.Client, method, url string, header map[string]string) (*http.Response, string) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), method, url, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for name, value := range header {
		if name == "Host" {
			req.Host = value
		} else {
			req.Header.Set(name, value)
		}
	}
	resp, err := client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var body bytes.Buffer
	if _, err := body.ReadFrom(resp.Body); err != nil {
		s.t.Fatal(err)
	}
	return resp, body.String()
}

func (s *testSite) get(url string, header map[string]string) (*http.Response, string) {
	s.t.Helper()
	return s.do(s.client, http.MethodGet, url, header)
}

// answers makes a request, and checks the status of the answer and that the policy goes with it.
func (s *testSite) answers(client *http.Client, name, method, path string, header map[string]string, want int) {
	s.t.Helper()
	resp, body := s.do(client, method, s.at.URL+path, header)
	if resp.StatusCode != want {
		s.t.Errorf("%s: %s, want %d: %.200s", name, resp.Status, want, body)
	}
	if got := resp.Header.Get("Content-Security-Policy"); got != policy {
		s.t.Errorf("%s: policy %q", name, got)
	}
}

// checkNoQueries checks that no attack started a packet trace.
func (f *fake) checkNoQueries(t *testing.T) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.diagnose != 0 {
		t.Errorf("%d attacks had packets followed", f.diagnose)
	}
}

// TestAttacks: requests that the server rejects, and files that it never serves.
func TestAttacks(t *testing.T) {
	t.Parallel()
	source := newFake("g1", "g2")
	s := openSite(t, source)
	anonymous := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	port := s.at.Listener.Addr().(*net.TCPAddr).Port
	for _, tt := range []struct {
		name, method, path string
		known              bool // sends the token
		header             map[string]string
		want               int
	}{
		{"no token for facts", "GET", "/api/map", false, nil, http.StatusUnauthorized},
		{"no token for events", "GET", "/api/events", false, nil, http.StatusUnauthorized},
		{"no token for a path that there is not", "GET", "/api/none", false, nil, http.StatusUnauthorized},
		{"no token, around the prefix of the paths", "GET", "//api/map", false, nil, http.StatusTemporaryRedirect},
		{"no token, around the prefix of the paths by dots", "GET", "/app.js/../api/map", false, nil, http.StatusTemporaryRedirect},
		{"no token, with the prefix escaped", "GET", "/%61pi/map", false, nil, http.StatusUnauthorized},
		{"no token, for packets", "POST", "/api/diagnose?for=2s", false, map[string]string{"Origin": "http://" + s.at.Listener.Addr().String()}, http.StatusUnauthorized},
		{"an empty token", "GET", "/api/map", false, map[string]string{tokenHeader: ""}, http.StatusUnauthorized},
		{"another token", "GET", "/api/map", false, map[string]string{tokenHeader: "AAAAAAAAAAAAAAAAAAAAAAAAAA"}, http.StatusUnauthorized},
		{"the token as a cookie", "GET", "/api/map", false, map[string]string{"Cookie": fmt.Sprintf("%s=%s; hawser-ui-%d=%[2]s", tokenHeader, s.server.token, port)}, http.StatusUnauthorized},
		{"the token in the query", "GET", "/api/map?token=" + s.server.token, false, nil, http.StatusUnauthorized},
		{"DNS rebinding", "GET", "/api/map", true, map[string]string{"Host": fmt.Sprintf("evil.example:%d", port)}, http.StatusMisdirectedRequest},
		{"DNS rebinding of the page itself", "GET", "/", false, map[string]string{"Host": "evil.example"}, http.StatusMisdirectedRequest},
		{"a name that begins like a loopback one", "GET", "/api/map", true, map[string]string{"Host": "localhost.evil.example"}, http.StatusMisdirectedRequest},
		{"an address of this machine that is not loopback", "GET", "/api/map", true, map[string]string{"Host": "192.0.2.1"}, http.StatusMisdirectedRequest},
		{"another site asks", "GET", "/api/map", true, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"a page without an origin asks", "GET", "/api/map", true, map[string]string{"Origin": "null"}, http.StatusForbidden},
		{"another port of this machine asks", "GET", "/api/map", true, map[string]string{"Origin": "http://127.0.0.1:1"}, http.StatusForbidden},
		{"another site embeds an answer", "GET", "/api/map", true, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		{"another port embeds a script", "GET", "/app.js", true, map[string]string{"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		{"another site frames the page", "GET", "/", true, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"}, http.StatusForbidden},
		{"a person comes from another site", "GET", "/", true, map[string]string{"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}, http.StatusOK},
		{"a form of another site has packets followed", "POST", "/api/diagnose?for=2s", true, map[string]string{"Origin": "https://evil.example"}, http.StatusForbidden},
		{"packets followed without an origin", "POST", "/api/diagnose?for=2s", true, nil, http.StatusForbidden},
		{"packets followed by a link", "GET", "/api/diagnose?for=2s", true, nil, http.StatusMethodNotAllowed},
		{"packets followed for a day", "POST", "/api/diagnose?for=24h", true, map[string]string{"Origin": "http://" + s.at.Listener.Addr().String()}, http.StatusBadRequest},
		{"a file of the program", "GET", "/../ui.go", true, nil, http.StatusNotFound},
		{"a file of the machine", "GET", "/..%2f..%2f..%2fetc/passwd", true, nil, http.StatusNotFound},
		{"a file of the machine, as Windows has it", "GET", `/..\..\etc\passwd`, true, nil, http.StatusNotFound},
		{"the directory of the page", "GET", "/page/", true, nil, http.StatusNotFound},
		{"a way to write", "PUT", "/app.js", true, map[string]string{"Origin": "http://" + s.at.Listener.Addr().String()}, http.StatusMethodNotAllowed},
	} {
		client := anonymous
		if tt.known {
			client = s.client
		}
		s.answers(client, tt.name, tt.method, tt.path, tt.header, tt.want)
	}
	source.checkNoQueries(t)
}

// TestOtherPorts: a browser that opened the page sends no part of its session to another port of
// this machine, and what that port receives opens nothing here.
func TestOtherPorts(t *testing.T) {
	t.Parallel()
	s := openSite(t, newFake("g1"))
	var received http.Header
	other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { received = r.Header.Clone() }))
	defer other.Close()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	browser := &http.Client{Jar: jar}
	for _, path := range []string{"/", "/app.js", "/api/map", "/api/none", "/?token=" + s.server.token} {
		if resp, _ := s.do(browser, http.MethodGet, s.at.URL+path, map[string]string{tokenHeader: s.server.token}); len(resp.Header.Values("Set-Cookie")) != 0 {
			t.Errorf("%s sets cookies: %v", path, resp.Cookies())
		}
	}
	s.do(browser, http.MethodGet, other.URL, nil)
	header := map[string]string{}
	for name := range received {
		header[name] = received.Get(name)
		if strings.Contains(header[name], s.server.token) {
			t.Errorf("the other port received the token in %s", name)
		}
	}
	s.answers(browser, "with all that the other port received", http.MethodGet, "/api/map", header, http.StatusUnauthorized)
}

// TestStartURL: the token is in the fragment, which no server and no proxy receives.
func TestStartURL(t *testing.T) {
	t.Parallel()
	s := openSite(t, newFake("g1"))
	start, err := url.Parse(s.server.URL("http://127.0.0.1:8080"))
	if err != nil || start.Fragment != "token="+s.server.token || start.RawQuery != "" || start.Path != "/" {
		t.Errorf("the URL is %s: %v", start, err)
	}
	resp, _ := s.get(s.at.URL, nil)
	for name, want := range map[string]string{"Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "X-Frame-Options": "DENY"} {
		if got := resp.Header.Get(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	for _, host := range []string{"localhost:8080", "LOCALHOST", "127.0.0.1", "127.9.9.9:1", "[::1]:80", "[::1]"} {
		if !loopbackName(host) {
			t.Errorf("%s is no name of the loopback address", host)
		}
	}
	for _, host := range []string{"", ":80", "example.org", "127.0.0.1.example.org", "10.0.0.1", "[fe80::1%lo]:80", "0.0.0.0", "[::ffff:10.0.0.1]"} {
		if loopbackName(host) {
			t.Errorf("%q counts as a name of the loopback address", host)
		}
	}
}

// TestPage: it loads nothing from elsewhere, has no script or style in it, never makes HTML
// of a text, and is small.
func TestPage(t *testing.T) {
	t.Parallel()
	s := openSite(t, newFake("g1"))
	var packed bytes.Buffer
	out := gzip.NewWriter(&packed)
	err := fs.WalkDir(page, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := page.ReadFile(path)
		if err != nil {
			return err
		}
		if _, err := out.Write(raw); err != nil {
			return err
		}
		name := strings.TrimPrefix(path, "page/")
		for _, found := range regexp.MustCompile(`https?://[^\s"'<>)]+`).FindAllString(string(raw), -1) {
			if found != "http://www.w3.org/2000/svg" {
				t.Errorf("%s names %s", name, found)
			}
		}
		if found := regexp.MustCompile(`innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|DOMParser|srcdoc|javascript:`).FindString(string(raw)); found != "" {
			t.Errorf("%s uses %s", name, found)
		}
		if name == indexFile {
			if found := regexp.MustCompile(`(?i)<style|<script[^>]*>[^<]|\son[a-z]+=|\sstyle=`).Find(raw); found != nil {
				t.Errorf("%s: %s", name, found)
			}
			return nil
		}
		resp, body := s.get(s.at.URL+"/"+name, nil)
		if resp.StatusCode != http.StatusOK || body != string(raw) || resp.Header.Get("Content-Type") == "" {
			t.Errorf("%s: %s, %s", name, resp.Status, resp.Header.Get("Content-Type"))
		}
		return nil
	})
	if err := errors.Join(err, out.Close()); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes compressed", packed.Len())
	if packed.Len() > 400_000 {
		t.Errorf("%d bytes compressed, want 400 kB at most", packed.Len())
	}
}

// TestAnswers: reasons are JSON, with the code of whose fault it is; markup stays text.
func TestAnswers(t *testing.T) {
	t.Parallel()
	source := newFake("g1", "g2")
	source.reports = Reports{HasAgents: true, Agents: []status.Status{agentOf("g1", "g2", status.Connected, 0)}}
	s := openSite(t, source)
	// So that agents are asked.
	s.events(func(_ string, data []byte) bool { return bytes.Contains(data, []byte(`"live":true`)) })
	for _, tt := range []struct {
		path string
		code int
		want string
	}{
		{"/api/history", http.StatusBadGateway, `{"error":"git is gone"}`},
		{"/api/plan?from=x", http.StatusBadRequest, `{"error":"no commit x"}`},
		{"/api/explain?from=a&to=b", http.StatusOK, `{"reason":"\u003cscript\u003ealert(1)\u003c/script\u003e"}`},
		{"/api/node?cluster=g1&node=none", http.StatusBadRequest, `{"error":"no agent of node \"none\" in cluster \"g1\" answered"}`},
		{"/api/cluster?name=g9", http.StatusBadRequest, `{"error":"there is no cluster \"g9\" in the topology"}`},
		{"/api/matrix?cluster=g9", http.StatusBadRequest, `{"error":"there is no cluster g9 in the topology"}`},
		{"/api/matrix", http.StatusOK, `{"clusterset":"demo","clusters":["g1","g2"],"exports":[]}`},
		{"/api/cluster?name=g1", http.StatusOK, `{"name":"g1","paths":[{"to":"g2","link":"g1/a-g2/a","reported":false}]}`},
	} {
		resp, body := s.get(s.at.URL+tt.path, nil)
		if resp.StatusCode != tt.code || body != tt.want || resp.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s: %s %s\n want %s", tt.path, resp.Status, body, tt.want)
		}
	}
	if resp, body := s.get(s.at.URL+"/api/node?cluster=g1&node=g1-gw", nil); resp.StatusCode != http.StatusOK || !strings.Contains(body, `"gateway":"a"`) {
		t.Errorf("node: %s %s", resp.Status, body)
	}
}

// events reads events until a function is content.
func (s *testSite) events(content func(name string, data []byte) bool) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at.URL+"/api/events", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := s.client.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	lines, name := bufio.NewScanner(resp.Body), ""
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		if text, ok := strings.CutPrefix(lines.Text(), "event: "); ok {
			name = text
		}
		if text, ok := strings.CutPrefix(lines.Text(), "data: "); ok && content(name, []byte(text)) {
			return
		}
	}
	s.t.Fatalf("the events ended: %v", lines.Err())
}

// TestEvents: the whole first, then only what changes, and another whole with other clusters.
func TestEvents(t *testing.T) {
	t.Parallel()
	source := newFake("g1", "g2", "g3")
	healthy := Reports{HasAgents: true, Agents: []status.Status{agentOf("g1", "g2", status.Connected, 0), agentOf("g2", "g1", status.Connected, 0)}}
	source.setReports(healthy)
	s := openSite(t, source)
	type event struct {
		Clusters []cluster
		Links    []link
		Live     bool
		Error    string
	}
	step := 0
	s.events(func(name string, data []byte) bool {
		var e event
		if name != "beat" {
			if err := json.Unmarshal(data, &e); err != nil {
				t.Error(err)
				return true
			}
		}
		switch {
		case step == 0 && name == "whole":
			if len(e.Clusters) != 3 || len(e.Links) != 3 {
				t.Errorf("the whole has %d clusters and %d links", len(e.Clusters), len(e.Links))
			}
			step++
		case step == 1 && e.Live && len(e.Links) > 0: // agents answered
			// The gateway of g2 dies.
			source.setReports(Reports{HasAgents: true, Agents: []status.Status{agentOf("g1", "g2", status.Disconnected, 0)}, Unreachable: []status.Unreachable{{Agent: "g2", Error: "gone"}}})
			step++
		case step == 2 && name == "change":
			if len(e.Clusters) == 0 {
				break
			}
			got := map[string]string{}
			for _, c := range e.Clusters {
				got["cluster "+c.Name] = c.State
			}
			for _, l := range e.Links {
				got["link "+l.Between[0]+"-"+l.Between[1]] = l.State
			}
			if d := cmp.Diff(map[string]string{"cluster g2": clustermap.Down, "link g1-g2": clustermap.Down}, got); d != "" {
				t.Errorf("change (-want +got):\n%s", d)
			}
			source.mu.Lock()
			source.set = newFake("g1", "g2").set
			source.mu.Unlock()
			step++
		case step == 3 && name == "whole":
			if len(e.Clusters) != 2 {
				t.Errorf("the other whole has %d clusters", len(e.Clusters))
			}
			source.mu.Lock()
			source.err = errors.New("clusterset.yaml:3:1: is no YAML")
			source.mu.Unlock()
			step++
		case step == 4 && e.Error != "":
			return e.Error == "clusterset.yaml:3:1: is no YAML"
		}
		return false
	})
}

// TestNoViewers: agents are queried only while a page is open.
func TestNoViewers(t *testing.T) {
	t.Parallel()
	source := newFake("g1")
	s := openSite(t, source)
	s.get(s.at.URL+"/api/map", nil)
	source.mu.Lock()
	if source.queries != 0 {
		t.Errorf("agents were queried %d times without an open page", source.queries)
	}
	source.mu.Unlock()
	s.events(func(string, []byte) bool {
		source.mu.Lock()
		defer source.mu.Unlock()
		return source.queries > 0
	})
}

// TestRate: traffic is what both ends counted since a second before, without the probes of the
// agents, and nothing after a restart of the tunnel.
func TestRate(t *testing.T) {
	t.Parallel()
	set := newFake("g1", "g2").set
	set.Fabric.Health.Interval = fabric.Duration(time.Second) // 720 bytes a second are probes
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	report := func(bytes int64) Reports {
		return Reports{HasAgents: true, Agents: []status.Status{agentOf("g1", "g2", status.Connected, bytes)}}
	}
	rate := func(p *Snapshot) int64 {
		var l link
		if err := json.Unmarshal(p.pieces["link/g1/g2"], &l); err != nil {
			t.Fatal(err)
		}
		return l.Rate
	}
	p := newSnapshot(Input{Clusterset: set, Reports: report(1000), At: at}, nil)
	for _, tt := range []struct {
		after time.Duration
		bytes int64
		want  int64
	}{
		{0, 1000, 0}, {500 * time.Millisecond, 2000, 0}, {2 * time.Second, 5000, 1280}, {2500 * time.Millisecond, 9000, 1280}, {4 * time.Second, 6000, 0}, {6 * time.Second, 100, 0},
	} {
		p = newSnapshot(Input{Clusterset: set, Reports: report(tt.bytes), At: at.Add(tt.after)}, p)
		if got := rate(p); got != tt.want {
			t.Errorf("after %s: %d bytes a second, want %d", tt.after, got, tt.want)
		}
	}
}

// TestThousand: the first picture of a thousand clusters is a small answer.
func TestThousand(t *testing.T) {
	t.Parallel()
	names := make([]string, 1000)
	for i := range names {
		names[i] = fmt.Sprintf("c%04d", i)
	}
	s := openSite(t, newFake(names...))
	startedAt := time.Now()
	resp, body := s.get(s.at.URL+"/api/map", nil)
	if resp.StatusCode != http.StatusOK || strings.Count(body, `"podCIDRs"`) != 1000 || !strings.Contains(body, `"meshImplied":true`) {
		t.Errorf("%s: %.300s", resp.Status, body)
	}
	t.Logf("%d bytes after %s", len(body), time.Since(startedAt))
	if len(body) > 400_000 {
		t.Errorf("%d bytes, want 400 kB at most", len(body))
	}
}

// TestManyLive: a mesh of more clusters than its links are listed for, whose agents all answer:
// messages about it stay small, a link that breaks comes onto the map with the next question,
// and goes when it is up again.
func TestManyLive(t *testing.T) {
	t.Parallel()
	for _, clusters := range []int{clustermap.MaxListed + 1, 300} {
		t.Run(fmt.Sprint(clusters), func(t *testing.T) {
			t.Parallel()
			names := make([]string, clusters)
			for i := range names {
				names[i] = fmt.Sprintf("c%03d", i)
			}
			source := newFake(names...)
			// report has every gateway connected to every other one, except the gateways of broken.
			report := func(broken map[string]bool) Reports {
				out := Reports{HasAgents: true, Agents: make([]status.Status, clusters)}
				for i, from := range names {
					s := status.Status{Cluster: from, Node: from + "-gw", Gateway: "a", Ready: true}
					for _, to := range names {
						if to == from {
							continue
						}
						c := status.Connection{Gateway: "a", RemoteCluster: to, RemoteGateway: "a", Driver: fabric.DriverWireguard, Status: status.Connected, Active: true, RTT: &status.RTT{Avg: 1200}}
						if broken[from+"/"+to] || broken[to+"/"+from] {
							c.Status = status.Disconnected
						}
						s.Connections = append(s.Connections, c)
					}
					out.Agents[i] = s
				}
				return out
			}
			source.setReports(report(nil))
			s := openSite(t, source)
			type event struct {
				Live, MeshImplied bool
				Clusters          []cluster
				Links             []link
				Gone              [][2]string
				Problems          []Problem
			}
			step, startedAt := 0, time.Now()
			s.events(func(name string, data []byte) bool {
				var e event
				if name == "beat" {
					return false
				}
				if err := json.Unmarshal(data, &e); err != nil {
					t.Fatal(err)
				}
				switch step {
				case 0:
					if !e.Live || len(e.Clusters) == 0 {
						break
					}
					if len(e.Clusters) != clusters || len(e.Links) != 0 || !e.MeshImplied || e.Clusters[0].State != clustermap.Up {
						t.Errorf("%d clusters, %d links, implied %v, the first is %s", len(e.Clusters), len(e.Links), e.MeshImplied, e.Clusters[0].State)
					}
					if most := 600 * clusters; len(data) > most {
						t.Errorf("%d bytes, want %d at most", len(data), most)
					}
					step, startedAt = 1, time.Now()
					source.setReports(report(map[string]bool{"c000/c007": true}))
				case 1:
					if len(e.Links) == 0 {
						break
					}
					t.Logf("a link is down after %s", time.Since(startedAt))
					if len(e.Links) != 1 || e.Links[0].Between != [2]string{"c000", "c007"} || e.Links[0].State != clustermap.Down || len(e.Links[0].Pairs) != 1 || len(data) > 10_000 {
						t.Errorf("%d links, %d bytes, the first is %+v", len(e.Links), len(data), e.Links[0])
					}
					if len(e.Clusters) != 0 || len(e.Problems) != 1 || e.Problems[0].Subject != "link c000 - c007" {
						t.Errorf("%d clusters changed for a link between gateways that answer, the headline is %+v", len(e.Clusters), e.Problems)
					}
					step = 2
					// All of a cluster's links at once, and no word of its agent.
					broken := map[string]bool{}
					for _, other := range names {
						broken["c003/"+other] = true
					}
					gone := report(broken)
					gone.Agents = append(gone.Agents[:3:3], gone.Agents[4:]...)
					gone.Unreachable = []status.Unreachable{{Agent: "c003", Error: "no answer"}}
					source.setReports(gone)
				case 2:
					if len(e.Links) != clusters-1 {
						break
					}
					found := false
					for _, c := range e.Clusters {
						found = found || c.Name == "c003" && c.State == clustermap.Down
					}
					if !found || len(e.Gone) != 1 {
						t.Errorf("a cluster that is gone is not down, or %d links went", len(e.Gone))
					}
					step = 3
					source.setReports(report(nil))
				case 3:
					return len(e.Gone) == clusters-1
				}
				return false
			})
			// The answer for one cluster.
			if resp, body := s.get(s.at.URL+"/api/cluster?name=c000", nil); resp.StatusCode != http.StatusOK || strings.Count(body, `"to":`) != clusters-1 {
				t.Errorf("the ways of a cluster: %s %.200s", resp.Status, body)
			}
		})
	}
}
