//go:build kube

package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/ociimage"
	"hawser.dev/hawser/view/clustermap"
	"hawser.dev/hawser/view/ui"
)

// TestPage tests that hawser ui queries the agents in the pods of clusters, and that its map shows the
// state of the link between them.
func TestPage(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	ctx, stop := context.WithTimeout(t.Context(), conditionTimeout)
	defer stop()
	cmd := exec.CommandContext(ctx, "hawser", "ui", "--context", "c1,c2")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.Dir, cmd.Env, cmd.Stderr = s.path("repo"), append(os.Environ(), "KUBECONFIG="+s.kubeconfig), os.Stderr
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	page, err := url.Parse(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	token := strings.TrimPrefix(page.Fragment, "token=")
	get := func(path string) io.ReadCloser {
		t.Helper()
		at := url.URL{Scheme: page.Scheme, Host: page.Host, Path: path}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Hawser-Token", token)
		answer, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", at.String(), answer.Status)
		}
		return answer.Body
	}
	_ = get("/").Close()
	watched := get("/api/events") // the server polls agents while a client reads events
	defer watched.Close()
	for {
		var m clustermap.Map
		body := get("/api/map")
		err := json.NewDecoder(body).Decode(&m)
		_ = body.Close()
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Clusters) == 2 && len(m.Links) == 1 && m.Links[0].State == "up" && m.Links[0].RTT > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("the map has %+v", m)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// TestPageInCluster tests ui: {}, with which each cluster serves the page. Through its Service the page
// shows the link up, and down while the other gateway's agent is frozen. A frozen agent of the same
// cluster is in its headline. It rejects requests without the token or with another host name. Its
// account may read only HawserNodes and the pods of hawser-system.
func TestPageInCluster(t *testing.T) {
	s := needClusterset(t, samePrefixes)
	s.kubelab(t, "import", s.pageImage(t))
	t.Cleanup(func() {
		s.reset(t)
		for _, c := range s.clusters { // kubectl apply -k removes nothing
			s.kubectl(t, c, "-n", "hawser-system", "delete", "--ignore-not-found", "deployment/hawser-ui", "service/hawser-ui", "serviceaccount/hawser-ui",
				"clusterrole/hawser-ui", "clusterrolebinding/hawser-ui", "role/hawser-ui", "rolebinding/hawser-ui")
		}
	})
	start := time.Now()
	s.change(t, "\nspec:\n", "\nspec:\n  ui: {hosts: [map.example.com]}\n")
	pages := map[string]clusterPage{}
	for _, c := range s.clusters {
		pages[c] = s.openPage(t, c)
		pages[c].awaitLinkState(t, "up")
	}
	t.Logf("figure: from the commit to both pages with the link up: %.1f s", time.Since(start).Seconds())

	page := pages["c1"]
	for _, tt := range []struct {
		name, want string
		args       []string
	}{
		{"the token as a bearer", "200", []string{"-H", "Authorization: Bearer " + page.token}},
		{"the name of the ingress", "200", []string{"-H", "Authorization: Bearer " + page.token, "-H", "Host: map.example.com"}},
		{"no token", "401", nil},
		{"another token", "401", []string{"-H", "Authorization: Bearer " + strings.Repeat("a", 32)}},
		{"another name that leads here", "421", []string{"-H", "Authorization: Bearer " + page.token, "-H", "Host: evil.example"}},
		{"another site, through an ingress that adds the token", "403", []string{"-H", "Authorization: Bearer " + page.token, "-H", "Sec-Fetch-Site: cross-site"}},
	} {
		if code := s.must(t, "", page.curl("/api/map", append(tt.args, "-o", "/dev/null", "-w", "%{http_code}")...)...); code != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, code, tt.want)
		}
	}

	for _, tt := range []struct {
		may  bool
		args []string
	}{
		{true, []string{"get", "hawsernodes"}},
		{true, []string{"get", "hawsernodes", "c1n1"}},
		{false, []string{"get", "secrets", "-n", "hawser-system"}},
		{false, []string{"get", "configmaps", "-n", "hawser-system"}},
		{true, []string{"get", "pods", "-n", "hawser-system"}},
		{false, []string{"get", "pods", "-A"}},
		{false, []string{"get", "pods", "-n", "sample"}},
		{false, []string{"delete", "pods", "-n", "hawser-system", "--all"}},
		{false, []string{"logs", "-n", "hawser-system", "deployment/hawser-ui"}},
		{false, []string{"get", "nodes"}},
		{false, []string{"get", "services", "-A"}},
		{false, []string{"delete", "hawsernode", "c1n1"}},
		{false, []string{"patch", "hawsernode", "c1n1", "--subresource=status", "--type=merge", "-p", `{"status":{"version":"x"}}`}},
	} {
		out, err := s.try(t.Context(), "", "", append([]string{"kubectl", "--context", "c1", "--as=system:serviceaccount:hawser-system:hawser-ui"}, tt.args...)...)
		if refused := err != nil && strings.Contains(out, "forbidden"); refused == tt.may || tt.may && err != nil {
			t.Errorf("%s: may %t, have %v", strings.Join(tt.args, " "), tt.may, err)
		}
	}

	// Freeze the agent of c2's gateway; its kernel continues.
	start = time.Now()
	resume := s.freezeAgent(t, "c2n1")
	page.awaitLinkState(t, "down")
	t.Logf("figure: from a frozen agent to the page with the link down: %.1f s", time.Since(start).Seconds())
	resume()
	page.awaitLinkState(t, "up")

	// The last report of a frozen agent still reports ready.
	start = time.Now()
	resume = s.freezeAgent(t, "c1n2")
	page.awaitProblem(t, true, func(p ui.Problem) bool {
		return p.Node == "c1n2" && p.Text == "does not answer" && strings.Contains(p.Consequence, "readiness probe")
	})
	t.Logf("figure: from a frozen agent to the headline of its cluster's page: %.1f s", time.Since(start).Seconds())
	resume()
	page.awaitProblem(t, false, func(p ui.Problem) bool { return p.Node == "c1n2" })
}

// pageImage writes the image of the tree's hawser, as a release has it.
func (s *clusterset) pageImage(t *testing.T) string {
	t.Helper()
	program, err := os.ReadFile(filepath.Join(built.dir, "hawser"))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "hawser.tar")
	file, err := os.Create(path)
	if err == nil {
		err = ociimage.Write(file, ociimage.Image{Arch: runtime.GOARCH, Names: []string{"hawser.dev/hawser:lab"}, Entrypoint: []string{"/hawser"},
			Files: []ociimage.File{{Path: "hawser", Mode: 0o755, Data: program}}})
	}
	if err == nil {
		err = file.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// clusterPage is the page that a cluster serves, as requested by a pod of the cluster.
type clusterPage struct {
	*clusterset
	cluster, token string
}

// openPage waits for the page of a cluster, and reads the token in its log.
func (s *clusterset) openPage(t *testing.T, cluster string) clusterPage {
	t.Helper()
	s.kubectl(t, cluster, "-n", "hawser-system", "rollout", "status", "deployment/hawser-ui", "--timeout="+conditionTimeout.String())
	log := s.kubectl(t, cluster, "-n", "hawser-system", "logs", "deployment/hawser-ui")
	for line := range strings.Lines(log) {
		if at, err := url.Parse(strings.TrimSpace(line)); err == nil && at.Host == "map.example.com" && at.Scheme == "https" {
			return clusterPage{s, cluster, strings.TrimPrefix(at.Fragment, "token=")}
		}
	}
	t.Fatalf("the log names no URL of the ingress:\n%s", log)
	return clusterPage{}
}

// curl returns the command that requests a path through the page's Service.
func (p clusterPage) curl(path string, args ...string) []string {
	return inPod(p.cluster, "client", append([]string{"curl", "-s", "-m", "5", "http://hawser-ui.hawser-system.svc" + path}, args...)...)
}

// awaitLinkState waits until the page shows the link of the two clusters in a state.
func (p clusterPage) awaitLinkState(t *testing.T, state string) {
	t.Helper()
	p.await(t, func(event pageEvent) bool {
		return len(event.Links) == 1 && event.Links[0].State == state && (state != "up" || event.Links[0].RTT > 0)
	})
}

// awaitProblem waits until a problem of the headline matches, or until none does. Other tests of these
// clusters may have left problems.
func (p clusterPage) awaitProblem(t *testing.T, exists bool, match func(ui.Problem) bool) {
	t.Helper()
	p.await(t, func(event pageEvent) bool { return slices.ContainsFunc(event.Problems, match) == exists })
}

// pageEvent is the whole state in an event of the page.
type pageEvent struct {
	Links    []clustermap.Link `json:"links"`
	Problems []ui.Problem      `json:"problems"`
}

// await waits until the last event of three seconds matches. The page is updated only while a client
// reads events.
func (p clusterPage) await(t *testing.T, match func(pageEvent) bool) {
	t.Helper()
	watch := p.curl("/api/events", "-N", "-m", "3", "-H", "Authorization: Bearer "+p.token)
	// curl ends after its time limit, with 28.
	watch = slices.Insert(watch, slices.Index(watch, "--")+1, "sh", "-c", `"$@" || [ $? = 28 ]`, "sh")
	p.eventually(t, func(out string) bool {
		last, found := pageEvent{}, false
		for line := range strings.Lines(out) {
			var event pageEvent
			if data, ok := strings.CutPrefix(line, "data: "); ok && json.Unmarshal([]byte(data), &event) == nil && len(event.Links) == 1 {
				last, found = event, true
			}
		}
		return found && match(last)
	}, watch...)
}
