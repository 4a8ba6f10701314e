package observe

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"hawser.dev/hawser/internal/cli"
	"hawser.dev/hawser/kubeclient"
	"hawser.dev/hawser/kubeclient/fakeapi"
	"hawser.dev/hawser/nodeagent/status"
)

func verified(name, failed string) status.Verified {
	export, _, _ := strings.Cut(strings.TrimPrefix(name, "g2."), ".")
	r := status.Verified{Check: status.Check{Export: "shop/" + export, Name: name + ".shop.svc.set"}, Error: failed, Micros: 1500}
	if failed == "" {
		r.Reached = []string{"243.0.0.1:80"}
	}
	return r
}

func verifiedSample() verification {
	good, bad := verified("web", ""), verified("g2.web", "connect to 242.2.0.9:80: i/o timeout")
	skipped, unready, silent, unresolved := verified("db", ""), verified("log", "no endpoint is ready"), verified("log", ""), verified("web", "look up web.shop.svc.set at 10.96.0.10:53: no such host")
	skipped.Reached, skipped.Micros, skipped.Skipped = nil, 0, "the export does not allow this cluster"
	unready.NotReady = unready.Error
	silent.Reached, silent.Unknown = nil, "no reply from 243.0.0.9:514/UDP: UDP servers may send none"
	node := func(cluster, name string, pod bool, results ...status.Verified) status.Verification {
		return status.Verification{Cluster: cluster, Node: name, FromPod: pod, Results: results}
	}
	broken := node("g3", "c", true)
	broken.Problem = "the pod has printed nothing: it is pending"
	return verification{
		Nodes:       []status.Verification{node("g1", "a", false, good, bad, skipped), node("g1", "b", false, good, bad, skipped), node("g3", "c", false, good, silent, unready)},
		Pods:        []status.Verification{node("g1", "a", true, unresolved, bad), broken},
		Unreachable: []status.Unreachable{{Agent: "g4/hawser-node-x", Error: "no route to host"}},
	}
}

// TestVerifiedText tests that problems are first, each with the next command, and that equal results of
// several nodes are printed once.
func TestVerifiedText(t *testing.T) {
	t.Parallel()
	const want = `pods of g1 use the cluster's DNS, which does not forward names to the agents, and nodes resolve the same names; next: hawser status
no ready endpoint of shop/log; next: hawser show exports
no connection to shop/web: connect to 242.2.0.9:80: i/o timeout; next: hawser diagnose --verify --export shop/web

g1/a: 1 of 2 names answered
g1/b: 1 of 2 names answered
g3/c: 1 of 3 names answered
pod on g1/a: 0 of 2 names answered

g2.web.shop.svc.set (shop/web): connect to 242.2.0.9:80: i/o timeout
  from g1/a, g1/b
  from pods on g1/a

db.shop.svc.set (shop/db): not tested: the export does not allow this cluster
  from g1/a, g1/b

log.shop.svc.set (shop/log): unknown: no reply from 243.0.0.9:514/UDP: UDP servers may send none
  from g3/c

log.shop.svc.set (shop/log): no endpoint is ready
  from g3/c

web.shop.svc.set (shop/web): look up web.shop.svc.set at 10.96.0.10:53: no such host
  from pods on g1/a

not tested: the pod has printed nothing: it is pending
  from pods on g3/c
`
	if diff := cmp.Diff(want, verifiedSample().text()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestVerifyPolicies tests that the NetworkPolicies of an export without a connection are in the first
// line, and those of other exports are not.
func TestVerifyPolicies(t *testing.T) {
	t.Parallel()
	api, c := fakeapi.New(t, "g2")
	api.Kinds["networking.k8s.io/v1"] = []fakeapi.Resource{{Name: "networkpolicies", Kind: "NetworkPolicy", Namespaced: true}}
	for _, name := range []string{"web", "db"} {
		pod := fakeapi.Object("Pod", "shop", name+"-0", nil)
		pod["metadata"].(map[string]any)["labels"] = map[string]any{"app": name}
		selector := map[string]any{"app": name}
		api.Objects["/api/v1/namespaces/shop/pods/"+name+"-0"] = pod
		api.Objects["/api/v1/namespaces/shop/services/"+name] = fakeapi.Object("Service", "shop", name, map[string]any{"spec": map[string]any{"selector": selector}})
		api.Objects["/apis/networking.k8s.io/v1/namespaces/shop/networkpolicies/"+name] = fakeapi.Object("NetworkPolicy", "shop", name, map[string]any{
			"spec": map[string]any{"podSelector": map[string]any{"matchLabels": selector}}})
	}
	result := func(name, failed string) status.Verified {
		r := verified(name, failed)
		r.Cluster = "g2"
		return r
	}
	v := verification{Nodes: []status.Verification{{Cluster: "g1", Node: "a", Results: []status.Verified{
		result("g2.web", "connect to 242.2.0.9:80: i/o timeout"), result("g2.db", "")}}}}
	v.addPolicies(t.Context(), []*kubeclient.Client{c})
	line, _, _ := strings.Cut(v.text(), "\n")
	want := "no connection to shop/web: connect to 242.2.0.9:80: i/o timeout (g2: NetworkPolicy shop/web selects pod shop/web-0 (Ingress)); next: hawser diagnose --verify --export shop/web"
	if line != want {
		t.Errorf("%s\nwant\n%s", line, want)
	}
}

// TestVerifyExit checks that the exit code is not 0 if there is nothing to verify or an agent does
// not answer. A failure is exit code 1 even if other results are unknown.
func TestVerifyExit(t *testing.T) {
	t.Parallel()
	good, bad, silent, skipped, unready := verified("web", ""), verified("web", "refused"), verified("web", ""), verified("web", ""), verified("web", "")
	silent.Unknown = "no reply"
	skipped.Skipped, skipped.Reached = "the export does not allow this cluster", nil
	unready.NotReady, unready.Error = "no endpoint is ready", "no endpoint is ready"
	nodes := func(results ...status.Verified) verification {
		return verification{Nodes: []status.Verification{{Cluster: "g1", Node: "a", Results: results}}}
	}
	unreachable, pod := nodes(good), nodes(good)
	unreachable.Unreachable = []status.Unreachable{{Agent: "g2/b"}}
	pod.Pods = []status.Verification{{Cluster: "g1", Node: "a", FromPod: true, Problem: "pending"}}
	worse := unreachable
	worse.Pods = []status.Verification{{Cluster: "g1", Node: "a", FromPod: true, Results: []status.Verified{bad}}}
	for name, tt := range map[string]struct {
		v    verification
		code int
		text string
	}{
		"answered":              {nodes(good), 0, ""},
		"answered, not allowed": {nodes(good, skipped), 0, ""},
		"failed":                {nodes(good, bad), 1, ""},
		"no endpoint":           {nodes(good, unready), 1, ""},
		"silent UDP":            {nodes(good, silent), 2, "1 result unknown"},
		"no export":             {nodes(), 2, "nothing to verify"},
		"none allowed":          {nodes(skipped), 2, "nothing to verify"},
		"no node":               {verification{}, 2, "nothing to verify"},
		"agent unreachable":     {unreachable, 2, "1 agent did not answer"},
		"pod unknown":           {pod, 2, "1 pod did not report"},
		"failed and unknown":    {worse, 1, ""},
	} {
		var errs bytes.Buffer
		env := &cli.Env{Out: io.Discard, Err: &errs}
		if code := env.Exit(tt.v.exit()); code != tt.code || !strings.Contains(errs.String(), tt.text) {
			t.Errorf("%s: exit code %d, want %d: %s", name, code, tt.code, &errs)
		}
		raw, err := junit(tt.v)
		if err != nil {
			t.Fatal(err)
		}
		var r junitReport
		if err := xml.Unmarshal(raw, &r); err != nil || r.Tests == 0 || (r.Failures+r.Errors > 0) != (tt.code > 0) {
			t.Errorf("%s: %v, JUnit does not say the same as exit code %d:\n%s", name, err, tt.code, raw)
		}
	}
}

// TestJUnit checks that the report has a suite for each client and a case for each name.
func TestJUnit(t *testing.T) {
	t.Parallel()
	v := verifiedSample()
	v.Nodes, v.Pods = v.Nodes[1:], v.Pods[1:]
	have, err := junit(v)
	if err != nil {
		t.Fatal(err)
	}
	const want = `<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="hawser verify" tests="8" failures="2" errors="3" skipped="1">
  <testsuite name="g1/b" tests="3" failures="1" errors="0" skipped="1" time="0.003">
    <testcase classname="g1/b" name="web.shop.svc.set (shop/web)" time="0.002"></testcase>
    <testcase classname="g1/b" name="g2.web.shop.svc.set (shop/web)" time="0.002">
      <failure message="connect to 242.2.0.9:80: i/o timeout"></failure>
    </testcase>
    <testcase classname="g1/b" name="db.shop.svc.set (shop/db)" time="0.000">
      <skipped message="the export does not allow this cluster"></skipped>
    </testcase>
  </testsuite>
  <testsuite name="g3/c" tests="3" failures="1" errors="1" skipped="0" time="0.004">
    <testcase classname="g3/c" name="web.shop.svc.set (shop/web)" time="0.002"></testcase>
    <testcase classname="g3/c" name="log.shop.svc.set (shop/log)" time="0.002">
      <error message="no reply from 243.0.0.9:514/UDP: UDP servers may send none"></error>
    </testcase>
    <testcase classname="g3/c" name="log.shop.svc.set (shop/log)" time="0.002">
      <failure message="no endpoint is ready"></failure>
    </testcase>
  </testsuite>
  <testsuite name="pod on g3/c" tests="1" failures="0" errors="1" skipped="0" time="0.000">
    <testcase classname="pod on g3/c" name="report of the pod" time="0.000">
      <error message="the pod has printed nothing: it is pending"></error>
    </testcase>
  </testsuite>
  <testsuite name="g4/hawser-node-x" tests="1" failures="0" errors="1" skipped="0" time="0.000">
    <testcase classname="g4/hawser-node-x" name="answer of the agent" time="0.000">
      <error message="no route to host"></error>
    </testcase>
  </testsuite>
</testsuites>
`
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestVerifyHostileNames checks that texts of clusters cannot end XML elements, begin output lines
// or move the terminal's cursor.
func TestVerifyHostileNames(t *testing.T) {
	t.Parallel()
	const evil = "x\"/></testcase></testsuites><!--]]>&\x00\x1b[2J\u202e\xff\n::error::y"
	r := status.Verified{Check: status.Check{Export: evil, Name: evil}, Error: evil}
	unknown, skipped := r, r
	unknown.Error, unknown.Unknown = "", evil
	skipped.Error, skipped.Skipped = "", evil
	v := verification{Nodes: []status.Verification{{Cluster: evil, Node: evil, Results: []status.Verified{r, unknown, skipped}}},
		Pods:        []status.Verification{{Cluster: evil, Node: evil, FromPod: true, Problem: evil, Results: []status.Verified{}}},
		Unreachable: []status.Unreachable{{Agent: evil, Error: evil}}}
	raw, err := junit(v)
	if err != nil {
		t.Fatal(err)
	}
	var decoded junitReport
	d := xml.NewDecoder(bytes.NewReader(raw))
	if err := d.Decode(&decoded); err != nil {
		t.Fatalf("%v\n%s", err, raw)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) && err != nil || !utf8.Valid(raw) || bytes.ContainsAny(raw, "\x00\x1b") {
		t.Errorf("%v\n%q", err, raw)
	}
	if len(decoded.Suites) != 3 || len(decoded.Suites[0].Cases) != 3 || decoded.Failures != 1 || decoded.Errors != 3 || decoded.Skipped != 1 ||
		!strings.HasPrefix(decoded.Suites[0].Cases[0].Failure.Message, `x"/></testcase></testsuites><!--]]>&`) {
		t.Errorf("%+v", decoded)
	}
	for _, line := range strings.Split(v.text(), "\n") {
		if strings.HasPrefix(line, "::") || strings.ContainsAny(line, "\x00\x1b\u202e") {
			t.Errorf("%q", line)
		}
	}
}

// TestPodVerification checks that only requested results of a pod count, and that the verification
// is unknown if a result is missing.
func TestPodVerification(t *testing.T) {
	t.Parallel()
	skipped := verified("db", "")
	skipped.Skipped = "not allowed"
	node := status.Verification{Cluster: "g1", Node: "a", Results: []status.Verified{verified("web", ""), verified("log", ""), skipped}}
	line := func(r status.Verified) string {
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		return string(raw) + "\n"
	}
	web, log := line(verified("web", "")), line(verified("log", "refused"))
	for name, tt := range map[string]struct {
		output  kubeclient.PodOutput
		results int
		problem string
	}{
		"all":              {kubeclient.PodOutput{Ended: true, Text: []byte(web + log)}, 2, ""},
		"one missing":      {kubeclient.PodOutput{Ended: true, Text: []byte(web)}, 1, "no result of 1 names"},
		"twice and others": {kubeclient.PodOutput{Ended: true, Text: []byte(web + web + line(verified("evil", "")))}, 1, "unexpected line"},
		"cut":              {kubeclient.PodOutput{Ended: true, Text: []byte(web + log[:20])}, 1, "no result of 1 names"},
		"not started":      {kubeclient.PodOutput{Reason: "it is pending"}, 0, "the pod has printed nothing: it is pending"},
		"evicted":          {kubeclient.PodOutput{Ended: true, Reason: "OutOfcpu"}, 0, "OutOfcpu"},
	} {
		have := podVerification(node, tt.output, nil)
		if len(have.Results) != tt.results || !strings.Contains(have.Problem, tt.problem) || (have.Problem == "") != (tt.problem == "") || !have.FromPod {
			t.Errorf("%s: %+v", name, have)
		}
	}
	args, rest := podArgs(node, verifyTimeout)
	if strings.Count(strings.Join(args, " "), "--check") != 2 || len(rest) != 0 {
		t.Errorf("%q %v", args, rest)
	}
	node.Results[0].Name = strings.Repeat("x", maxPodArgs)
	if _, rest := podArgs(node, verifyTimeout); len(rest) != 2 {
		t.Errorf("%d checks do not fit", len(rest))
	}
	if args, _ := podArgs(status.Verification{Results: []status.Verified{skipped}}, verifyTimeout); args != nil {
		t.Errorf("%q", args)
	}
}
