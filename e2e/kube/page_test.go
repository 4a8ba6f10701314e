//go:build kube

package kube

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/clustermap"
)

// TestPage: hawser ui asks the agents in the pods of clusters, and its map has the state of
// the link between them.
func TestPage(t *testing.T) {
	s := needSet(t, same)
	ctx, stop := context.WithTimeout(t.Context(), limit)
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
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Jar: jar}
	get := func(path string) io.ReadCloser {
		t.Helper()
		at := *page
		if path != "" {
			at.Path, at.RawQuery = path, ""
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s", at.String(), answer.Status)
		}
		return answer.Body
	}
	_ = get("").Close()
	watched := get("/api/events") // agents are asked while somebody watches
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
