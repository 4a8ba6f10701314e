package ui

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/view/clustermap"
)

const testToken = "0123456789abcdef0123456789abcdef"

// openInCluster serves the page as a cluster does, behind an ingress for map.example.com.
func openInCluster(t *testing.T, source Source, probe func() error) *testSite {
	t.Helper()
	return openWith(t, Config{Source: source, Hosts: []string{"hawser-ui.hawser-system.svc", "map.example.com"}, Token: testToken,
		Probe: probe, LiveCluster: "g1", HiddenViews: []string{"change", "follow"}})
}

// TestAttacksInCluster: who is not let in to a page that others can reach.
func TestAttacksInCluster(t *testing.T) {
	t.Parallel()
	source := newFake("g1", "g2")
	s := openInCluster(t, source, func() error { return nil })
	anonymous := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	bearer := "Bearer " + testToken
	const host = "map.example.com"
	for _, tt := range []struct {
		name, method, path string
		header             map[string]string
		want               int
	}{
		{"the token as a bearer", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer}, http.StatusOK},
		{"the token as a bearer, in the cluster", "GET", "/api/map", map[string]string{"Host": "hawser-ui.hawser-system.svc:80", "Authorization": bearer}, http.StatusOK},
		{"the token as a bearer, as the ingress sends it", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer,
			"X-Forwarded-Proto": "https", "Origin": "https://" + host, "Sec-Fetch-Site": "same-origin"}, http.StatusOK},
		{"a name in capitals", "GET", "/api/map", map[string]string{"Host": "MAP.example.com", "Authorization": bearer}, http.StatusOK},
		{"no token", "GET", "/api/map", map[string]string{"Host": host}, http.StatusUnauthorized},
		{"the token of the page, and a password for the ingress", "GET", "/api/map", map[string]string{"Host": host, tokenHeader: testToken, "Authorization": "Basic dTpw"}, http.StatusOK},
		{"no token, from a pod that says localhost", "GET", "/api/map", map[string]string{"Host": "localhost"}, http.StatusUnauthorized},
		{"another bearer", "GET", "/api/map", map[string]string{"Host": host, "Authorization": "Bearer " + strings.Repeat("0", 32)}, http.StatusUnauthorized},
		{"an empty bearer", "GET", "/api/map", map[string]string{"Host": host, "Authorization": "Bearer "}, http.StatusUnauthorized},
		{"the token as a password", "GET", "/api/map", map[string]string{"Host": host, "Authorization": "Basic " + testToken}, http.StatusUnauthorized},
		{"the token in Referer", "GET", "/api/map", map[string]string{"Host": host, "Referer": "https://" + host + "/?token=" + testToken}, http.StatusUnauthorized},
		{"the token for facts", "GET", "/api/map?token=" + testToken, map[string]string{"Host": host}, http.StatusUnauthorized},
		{"a longer token", "GET", "/api/map", map[string]string{"Host": host, tokenHeader: testToken + "1"}, http.StatusUnauthorized},
		{"DNS rebinding with the token", "GET", "/api/map", map[string]string{"Host": "evil.example", "Authorization": bearer}, http.StatusMisdirectedRequest},
		{"DNS rebinding, and the name in another header", "GET", "/api/map", map[string]string{"Host": "evil.example", "X-Forwarded-Host": host, "Authorization": bearer}, http.StatusMisdirectedRequest},
		{"a name that begins like the page's", "GET", "/api/map", map[string]string{"Host": host + ".evil.example", "Authorization": bearer}, http.StatusMisdirectedRequest},
		{"a name that ends like the page's", "GET", "/api/map", map[string]string{"Host": "evil-" + host, "Authorization": bearer}, http.StatusMisdirectedRequest},
		{"the pod's address", "GET", "/api/map", map[string]string{"Host": "10.7.0.9:8080", "Authorization": bearer}, http.StatusMisdirectedRequest},
		{"another site, through an ingress that adds the token", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer, "Origin": "https://evil.example"}, http.StatusForbidden},
		{"another site of the domain embeds an answer", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, http.StatusForbidden},
		{"the same name without TLS asks", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer, "X-Forwarded-Proto": "https", "Origin": "http://" + host}, http.StatusForbidden},
		{"another port of the name asks", "GET", "/api/map", map[string]string{"Host": host, "Authorization": bearer, "Origin": "https://" + host + ":8443"}, http.StatusForbidden},
		{"TLS before the loopback address", "GET", "/api/map", map[string]string{"Host": "localhost", "Authorization": bearer, "Origin": "https://localhost"}, http.StatusForbidden},
		{"a form of another site has packets followed", "POST", "/api/diagnose?for=2s", map[string]string{"Host": host, "Authorization": bearer, "Origin": "https://evil.example"}, http.StatusForbidden},
		{"a probe by another name", "GET", "/healthz", map[string]string{"Host": "evil.example"}, http.StatusMisdirectedRequest},
		{"a probe", "GET", "/healthz", map[string]string{"Host": "localhost"}, http.StatusOK},
	} {
		s.answers(anonymous, tt.name, tt.method, tt.path, tt.header, tt.want)
	}
	source.checkNoQueries(t)
}

// TestTokens: a token that is given stays over restarts; New makes a different token each
// time.
func TestTokens(t *testing.T) {
	t.Parallel()
	first := openInCluster(t, newFake("g1"), nil)
	second := openInCluster(t, newFake("g1"), nil)
	first.answers(second.client, "the token of the server before", http.MethodGet, "/api/map", nil, http.StatusOK)
	if a, b := New(Config{}).token, New(Config{}).token; a == b || len(a) < 26 {
		t.Errorf("tokens %s and %s", a, b)
	}
	for token, valid := range map[string]bool{testToken: true, "short": false, strings.Repeat("a", 31): false, testToken + " b": false, testToken + "\n": false, testToken + "é": false} {
		if err := CheckToken(token); (err == nil) != valid {
			t.Errorf("%q: %v", token, err)
		}
	}
}

// TestProbes: they need no token and say nothing else; a page on a machine has none.
func TestProbes(t *testing.T) {
	t.Parallel()
	s := openInCluster(t, newFake("g1"), func() error { return errors.New("no fabric of secret-cluster") })
	anonymous := &http.Client{}
	for path, want := range map[string]int{"/healthz": http.StatusOK, "/readyz": http.StatusServiceUnavailable} {
		if resp, body := s.do(anonymous, http.MethodGet, s.at.URL+path, nil); resp.StatusCode != want || strings.Contains(body, "secret-cluster") {
			t.Errorf("%s: %s: %s", path, resp.Status, body)
		}
	}
	local := openSite(t, newFake("g1"))
	if resp, _ := local.do(anonymous, http.MethodGet, local.at.URL+"/healthz", nil); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a page on a machine answers probes: %s", resp.Status)
	}
}

// TestOneClusterReports: what the agents of one cluster say is drawn, what others would say is
// unknown, and no gateway is called dead by them alone; names from objects stay text.
func TestOneClusterReports(t *testing.T) {
	t.Parallel()
	source := newFake("g1", "g2", "g3")
	down := agentOf("g1", "g2", status.Disconnected, 0)
	down.Problems = []status.Problem{{Code: "error", Text: "<img src=x onerror=alert(1)>"}}
	source.setReports(Reports{HasAgents: true, Agents: []status.Status{down}, Unreachable: []status.Unreachable{{Agent: "g1/<b>", Error: "<script>alert(1)</script>"}}})
	s := openInCluster(t, source, nil)
	s.server.publisher.refresh(t.Context(), true)
	_, body := s.get(s.at.URL+"/api/map", nil)
	var got struct {
		LiveCluster string               `json:"liveCluster"`
		HiddenViews []string             `json:"hiddenViews"`
		Unreachable []status.Unreachable `json:"unreachable"`
		Links       []clustermap.Link    `json:"links"`
		All         []clustermap.Cluster `json:"clusters"`
	}
	if err := json.Unmarshal([]byte(body), &got); err != nil {
		t.Fatal(err)
	}
	states := map[string]string{}
	for _, l := range got.Links {
		states[l.Between[0]+"-"+l.Between[1]] = l.State
	}
	for _, c := range got.All {
		states[c.Name] = c.Gateways[0].State
	}
	for name, want := range map[string]string{"g1-g2": clustermap.Down, "g1-g3": clustermap.Unknown, "g2-g3": clustermap.Unknown, "g1": clustermap.Down, "g2": clustermap.Unknown} {
		if states[name] != want {
			t.Errorf("%s is %q, want %q", name, states[name], want)
		}
	}
	if got.LiveCluster != "g1" || len(got.HiddenViews) != 2 || len(got.Unreachable) != 1 || strings.ContainsAny(body, "<>") {
		t.Errorf("have %.2000s", body)
	}
}
