package ui

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"time"

	"hawser.dev/hawser/internal/svg"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/view/packettrace"
)

// evil ends elements, comments and lines, and begins handlers.
const evil = "</script></title><!--<script>alert(1)</script><img src=//x onerror=alert(1)>\" onload=\"x\x1b[31m\u202e\u2028\u2029"

// hostileSnapshot returns a snapshot in which every text from others is evil.
func hostileSnapshot(t *testing.T) *Snapshot {
	t.Helper()
	source := newFake(evil, "g2")
	source.set.Sources, source.set.Findings = []string{evil}, []Finding{{By: "validate", Severity: Warning, Position: evil, Text: evil, Hint: evil}}
	source.set.Fabric.Name, source.set.PositionOf = evil, func(string) string { return evil }
	source.set.Fabric.Exports = []fabric.Export{{Name: evil, Namespace: evil, Ports: []fabric.Port{{Name: evil, Port: 80}}, Clusters: []fabric.ExportCluster{{Name: "g2"}}}}
	verified, err := NewVerification(time.Unix(1, 0), time.Unix(2, 0), []status.Verification{{Cluster: "g2", Node: evil, Results: []status.Verified{
		{Check: status.Check{Export: evil, Name: evil}, Reached: []string{evil}, Unknown: evil}, {Check: status.Check{Export: evil, Name: evil}, Error: evil},
		{Check: status.Check{Export: evil, Name: evil, Skipped: evil}}}}},
		[]status.Unreachable{{Agent: evil, Error: evil}})
	if err != nil {
		t.Fatal(err)
	}
	agent := status.Status{Cluster: "g2", Node: evil, Gateway: evil, Version: evil, Digest: evil, Problems: []status.Problem{{Text: evil, Next: evil}, {Severity: status.Error, Text: evil}},
		LastRound: status.Round{Failed: []string{evil}, Blocked: []string{evil}}, Inputs: []status.InputState{{Name: evil, Error: evil}},
		Connections: []status.Connection{{Gateway: evil, RemoteCluster: evil, RemoteGateway: evil, Status: status.Disconnected, Reason: evil}}}
	hop := &packettrace.Hop{Cluster: evil, Node: evil, Outcome: packettrace.Dropped, Finding: &status.Finding{Location: evil, Text: evil, Next: evil}}
	return NewSnapshot(Input{Clusterset: source.set, At: time.Unix(3, 0), Version: evil, Verification: verified,
		Reports: Reports{HasAgents: true, From: evil, Agents: []status.Status{agent}, Unreachable: []status.Unreachable{{Agent: evil, Error: evil}}},
		Traces:  &packettrace.Report{Traces: []packettrace.Trace{{First: hop, Outcome: packettrace.Dropped}}}})
}

// TestFile: with any names of clusters, nodes, agents and files, a report has only the scripts and styles
// of the page, and its policy lists each of them.
func TestFile(t *testing.T) {
	t.Parallel()
	snapshot := hostileSnapshot(t)
	raw, err := snapshot.HTML()
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	for _, forbidden := range []string{"<!--", "<img", "\x1b", "\u2028", "\u2029", "<link", "<script src", " style=", "@import", "url(", `" onload="`, "/title><!"} {
		if strings.Contains(text, forbidden) {
			t.Errorf("the file has %q", forbidden)
		}
	}
	policy := regexp.MustCompile(`http-equiv="Content-Security-Policy" content="([^"]*)"`).FindStringSubmatchIndex(text)
	if policy == nil || policy[0] > strings.Index(text, "<title") || policy[0] > strings.Index(text, "<style") {
		t.Fatal("no policy before what it is for")
	}
	allowed := text[policy[2]:policy[3]]
	if !strings.HasPrefix(allowed, "default-src 'none'; base-uri 'none'; form-action 'none'; style-src 'sha256-") || strings.Contains(allowed, "unsafe") {
		t.Errorf("policy %s", allowed)
	}
	elements := regexp.MustCompile(`(?s)<(script|style)[^>]*?(type="application/json")?>(.*?)</(?:script|style)>`).FindAllStringSubmatch(text, -1)
	if len(elements) != 4 || strings.Count(text, "<script") != 2 || strings.Count(strings.ToLower(text), "</script") != 2 {
		t.Fatalf("%d elements, %d scripts", len(elements), strings.Count(text, "<script"))
	}
	for _, e := range elements {
		if data := e[2] != ""; data == strings.Contains(allowed, digest(e[3])) {
			t.Errorf("the policy does not fit the %s that begins with %.60q", e[1], e[3])
		} else if data {
			var got struct {
				Clusterset, Version string
				Sources             []string
				Findings            []Finding
				Verified            *Verification
				Traces              struct{ Traces []packettrace.Trace }
			}
			if err := json.Unmarshal([]byte(e[3]), &got); err != nil {
				t.Fatal(err)
			}
			if got.Clusterset != evil || got.Version != evil || len(got.Sources) != 2 || got.Sources[1] != evil || got.Verified.Nodes[0].Node != evil || got.Traces.Traces[0].First.Node != evil {
				t.Errorf("texts are changed: %+v", got)
			}
			if n := len(got.Findings); n < 6 || got.Findings[0].Severity != Error {
				t.Errorf("%d findings: %+v", n, got.Findings)
			}
		}
	}
	if !strings.Contains(text, "<title>Clusterset "+svg.Escape(evil)+"</title>") {
		t.Error("the title is not the name of the clusterset")
	}
	if !snapshot.HasErrors() || NewSnapshot(Input{Clusterset: newFake("g1").set}).HasErrors() {
		t.Error("errors are not what the findings have")
	}
}

// TestBundle: the script of a file has each module once, imports before importers, and no module
// syntax, which a classic script does not have.
func TestBundle(t *testing.T) {
	t.Parallel()
	script := bundle("app")
	if found := regexp.MustCompile(`(?m)^(import|export)\b.*`).FindString(script); found != "" {
		t.Errorf("the script has %q", found)
	}
	defined := map[string]bool{}
	for line := range strings.Lines(script) {
		if m := regexp.MustCompile(`^const module_(\w+) = `).FindStringSubmatch(line); m != nil {
			if defined[m[1]] {
				t.Errorf("module %s is there twice", m[1])
			}
			defined[m[1]] = true
		} else if m := regexp.MustCompile(`= module_(\w+);`).FindStringSubmatch(line); m != nil && !defined[m[1]] {
			t.Errorf("module %s is used before it is there", m[1])
		}
	}
	for _, name := range pageFiles() {
		if module, is := strings.CutSuffix(name, ".js"); is && !defined[module] {
			t.Errorf("module %s is missing", module)
		}
	}
}

// TestLargeFile: a file of a thousand clusters whose agents all answer stays small enough to open.
func TestLargeFile(t *testing.T) {
	t.Parallel()
	var names []string
	for i := range 1000 {
		names = append(names, "c"+strings.Repeat("0", 2)+time.Duration(i).String())
	}
	in := Input{Clusterset: newFake(names...).set, Reports: Reports{HasAgents: true}}
	for _, from := range names {
		s := agentOf(from, names[0], status.Connected, 0)
		for _, to := range names[:30] {
			s.Connections = append(s.Connections, agentOf(from, to, status.Connected, 0).Connections...)
		}
		in.Reports.Agents = append(in.Reports.Agents, s)
	}
	raw, err := NewSnapshot(in).HTML()
	if err != nil {
		t.Fatal(err)
	}
	if maxBytes := 64 << 20; len(raw) > maxBytes {
		t.Errorf("%d MB, want %d at most", len(raw)>>20, maxBytes>>20)
	}
	t.Logf("%d kB", len(raw)>>10)
}
