//go:build kube

package tree

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"hawser.dev/hawser/e2e/kube/api"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
)

// forward is the configuration that agents of the tests' clusters write.
var forward = corefile.Forward{
	Zones: []string{"clusterset.local", "0.243.in-addr.arpa"}, Servers: []netip.Addr{netip.MustParseAddr("169.254.73.53")},
}

// set stores a ConfigMap of the cluster's DNS with one key, as an administrator.
func (c caller) set(name, key, text string) *unstructured.Unstructured {
	c.t.Helper()
	o := object(c.t, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: "+name+", namespace: kube-system, labels: {a: b}}\n")
	if key != "" {
		o.Object["data"] = map[string]any{key: text, "theirs.server": "# theirs\n"}
	}
	client := c.in(configMaps, "kube-system")
	if err := client.Delete(c.t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
		c.t.Fatal(err)
	}
	stored, err := client.Create(c.t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return stored
}

// write returns the error of a request of the caller to set one key.
func (c caller) write(o *unstructured.Unstructured, key, text string) error {
	return c.update(o, configMaps, func(o map[string]any) { o["data"].(map[string]any)[key] = text })
}

// hostileLines returns lines that mutations inserts at every place of a Corefile.
func hostileLines(port string) []string {
	return []string{
		"import /etc/passwd", "    bind 192.0.2.9", "    bind nosuchdev0", "    bind 127.0.0.1", "    loadbalance", "}", "{", "\"", "# hawser: begin", "# hawser: end", "\t",
		".:" + port + " {", "clusterset.local:" + port + " {\n}", "    forward . 6.6.6.6", "\u00a0", "\r",
	}
}

// mutations returns variants of the text that an agent writes.
func mutations(text, bare, port string, random *rand.Rand) []string {
	var out []string
	lines := strings.SplitAfter(strings.TrimSuffix(text, "\n"), "\n")
	with := func(i, n int, more ...string) {
		out = append(out, strings.Join(lines[:i], "")+strings.Join(more, "")+strings.Join(lines[i+n:], ""))
	}
	for i, line := range lines {
		with(i, 1)
		with(i, 0, line)
		with(i, 1, "#"+line)
		with(i, 1, strings.TrimSuffix(line, "\n")+"\r\n")
		with(i, 1, strings.TrimSuffix(line, "\n")+" # x\n")
		with(i, 1, "\t"+strings.TrimLeft(line, " "))
		with(i, 1, strings.ReplaceAll(line, " ", "  "))
		with(i, 1, "\""+strings.TrimSuffix(line, "\n")+"\"\n")
		if i+1 < len(lines) {
			with(i, 2, lines[i+1], line)
		}
		for _, hostile := range hostileLines(port) {
			with(i, 0, hostile+"\n")
		}
	}
	for _, r := range [][2]string{
		{":" + port, ":99999"}, {":" + port, ":0"}, {":" + port, ":1"}, {":" + port, ""}, {":" + port, ":{$PORT}"}, {":" + port, ":5354"}, {":" + port, ":" + port + ":" + port},
		{"clusterset.local:", "x.clusterset.local:"}, {"clusterset.local:", "cluster.local:"}, {"clusterset.local:", ".:"}, {"clusterset.local:", "CLUSTERSET.local:"},
		{"clusterset.local:", "clusterset.local.:"}, {"clusterset.local:", "tls://clusterset.local:"}, {"clusterset.local:", "(clusterset.local):"},
		{"clusterset.local:" + port + " ", "clusterset.local:" + port + " clusterset.local:" + port + " "}, {"clusterset.local:" + port + " ", ""},
		{"0.243.in-addr.arpa:", "....in-addr.arpa:"}, {"0.243.in-addr.arpa:", "10.in-addr.arpa:"}, {"0.243.in-addr.arpa:", "243.0.0.0/16:"}, {"0.243.in-addr.arpa:" + port + " ", ""},
		{"0.243.in-addr.arpa:" + port + " ", "0.243.in-addr.arpa:" + port + ", "}, {"0.243.in-addr.arpa:" + port + " ", "0.243.in-addr.arpa:" + port + " evil.example "},
		{"169.254.73.53", "6.6.6.6"}, {"169.254.73.53", "169.254.73.53 6.6.6.6"}, {"169.254.73.53", "169.254.73.53:99999"}, {"169.254.73.53", "169.254.73.53 169.254.73.53"},
		{"max_fails 0", "max_fails 1"}, {"max_fails 0", "max_fails x"}, {"forward .", "forward x"}, {"errors", "errors {\n}"},
	} {
		out = append(out, strings.Replace(text, r[0], r[1], 1), strings.ReplaceAll(text, r[0], r[1]))
	}
	block, _, _ := corefile.SplitBlock(text)
	out = append(out,
		bare+block, block+block+bare, bare+"\n"+block, strings.Replace(bare, "{\n", "{\n"+block, 1), strings.Replace(bare, "\n", "\n"+block, 1),
		block, "", bare, strings.ReplaceAll(text, "\n", "\r\n"), strings.ReplaceAll(text, "    ", "\t"), text+"\n", text+strings.Repeat("# x\n", 5000),
		block+strings.Repeat(" ", 1000)+bare, strings.Replace(block, "    errors", strings.Repeat("    errors\n", 1000), 1)+bare)
	for range 60 {
		at := random.IntN(len(text))
		out = append(out, text[:at]+text[min(len(text), at+1+random.IntN(20)):], text[:at]+string(rune(random.IntN(128)))+text[at+1:],
			text[:at]+lines[random.IntN(len(lines))]+text[at:])
	}
	return out
}

// TestDNSPolicy tests the admission policy for the cluster's DNS, after an attack on a gateway's
// node. With every text that the policy accepts, CoreDNS starts, and the text outside of Hawser's
// block is unchanged.
func TestDNSPolicy(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	s.Install(t, topology)
	admin, gateway, _ := callers(t, s)
	ports := api.FreePorts(t, 3)
	port, second := ports[0], ports[1]
	if ok, _ := api.CoreDNS(t, "clusterset.local:99999 {\n errors\n}\n"); ok {
		t.Fatal("CoreDNS starts with a wrong port, so this test proves nothing")
	}
	o := admin.set("coredns", "Corefile", ".:"+port+" {\n    errors\n}\n")
	enforced(t, "the cluster's DNS", func() error { return gateway.write(o, "Corefile", "x") })

	random := rand.New(rand.NewPCG(1, 2))
	seen := map[string]bool{}
	requests := 0
	for i, bare := range []string{
		"# ours\n.:" + port + " {\n    errors\n    hosts {\n       192.0.2.1 clusterset.local\n       fallthrough\n    }\n    forward . 127.0.0.1:1 {\n       max_concurrent 1000\n    }\n    cache 30\n    reload\n}\n",
		"(log) {\n    errors\n}\n.:" + port + " {\n    import log\n    bind 127.0.0.1 # here\n    log . \"{remote} { #\"\n}\nexample.org:" + port + ",\nexample.net:" + port + " {\n    bind 127.0.0.1\n    loadbalance\n}\n",
		"dns://.:" + port + " {\n    errors\n}\nclusterset.local:" + second + " {\n    loadbalance\n}\n",
		"example.org:" + port + " {\n    loadbalance\n}\n",
		"clusterset.local.:" + port + " {\n    loadbalance\n}\n.:" + port + " {\n    errors\n}\n",
		".:" + port + " {\n    errors\n}\n243.0.0.0/16:" + port + " {\n    loadbalance\n}\n",
		".:" + port + " {\r\n    errors\r\n}\r\n",
	} {
		text, err := corefile.Insert(bare, forward)
		if text == bare {
			t.Fatalf("%v\n%s", err, bare)
		}
		if ok, out := api.CoreDNS(t, text); !ok {
			t.Fatalf("CoreDNS does not start with what agents write:\n%s\n%s", text, out)
		}
		for _, before := range []string{bare, text} {
			o := admin.set("coredns", "Corefile", before)
			allowed(t, true, fmt.Sprintf("the agent's text %q", text), gateway.write(o, "Corefile", text))
			allowed(t, true, fmt.Sprintf("the text without Hawser's part %q", bare), gateway.write(o, "Corefile", bare))
			list := mutations(text, bare, port, random)
			if i > 1 { // these Corefiles differ only outside of the block
				list = list[len(list)-240:]
			}
			accepted := make([]bool, len(list))
			requests += len(list)
			var wait sync.WaitGroup
			free := make(chan struct{}, 4)
			for i, m := range list {
				free <- struct{}{}
				wait.Go(func() {
					defer func() { <-free }()
					err := gateway.write(o, "Corefile", m)
					if accepted[i] = err == nil; err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) {
						t.Errorf("%v\n%s", err, m)
					}
				})
			}
			wait.Wait()
			for i, m := range list {
				if !accepted[i] || seen[m] {
					continue
				}
				seen[m] = true
				if _, rest, _ := corefile.SplitBlock(m); rest != bare {
					t.Errorf("accepted, and other text changed:\n%s\nbefore:\n%s", m, before)
				}
				if ok, out := api.CoreDNS(t, m); !ok {
					t.Errorf("accepted, and CoreDNS stops:\n%s\n%s", m, out)
				}
			}
		}
	}
	t.Logf("figure: %d mutations of Corefiles, %d different ones accepted, CoreDNS starts with each", requests, len(seen))

	// Agents write no block with these Corefiles either, or cannot parse them.
	block, _, _ := corefile.SplitBlock(func() string { text, _ := corefile.Insert(".:"+port+" {\n}\n", forward); return text }())
	for what, bare := range map[string]string{
		"both zones are served": "clusterset.local:" + port + " 0.243.in-addr.arpa:" + port + " {\n}\n.:" + port + " {\n}\n", "by quoted keys": "\"clusterset.local:" + port + "\" {\n}\n.:" + port + " {\n}\n",
		"no braces": ".:" + port + "\nerrors\n", "an open block": ".:" + port + " {\n", "a bind": ".:" + port + " {\n    bind 127.0.0.1\n}\n",
		"a bind behind the brace": ".:" + port + " { bind 127.0.0.1\n}\n", "another port": ".:" + second + " {\n}\n", "a wider prefix": ".:" + port + " {\n}\n243.0.0.0/15:" + port + " {\n}\n",
		"a port of the environment": ".:" + port + " {\n}\nclusterset.local:{$P} {\n}\n",
	} {
		o := admin.set("coredns", "Corefile", bare)
		allowed(t, false, "Hawser's part with: "+what, gateway.write(o, "Corefile", block+bare))
	}
	for what, bare := range map[string]string{"inside of another block": ".:" + port + " {\n# hawser: begin\n# hawser: end\n}\n", "between keys": "a.example:" + port + ",\n# hawser: begin\n# hawser: end\n.:" + port + " {\n}\n"} {
		o := admin.set("coredns", "Corefile", bare)
		allowed(t, false, "Hawser's part "+what, gateway.write(o, "Corefile", strings.Replace(bare, "# hawser: begin\n# hawser: end\n", block, 1)))
		allowed(t, true, "no part "+what, gateway.write(o, "Corefile", strings.Replace(bare, "# hawser: begin\n# hawser: end\n", "", 1)))
	}

	// The policy rejects changes of all other fields.
	o = admin.set("coredns", "Corefile", ".:"+port+" {\n}\n")
	good := block + ".:" + port + " {\n}\n"
	for what, change := range map[string]func(map[string]any){
		"labels":      func(o map[string]any) { _ = unstructured.SetNestedField(o, "c", "metadata", "labels", "a") },
		"no labels":   func(o map[string]any) { unstructured.RemoveNestedField(o, "metadata", "labels") },
		"annotations": func(o map[string]any) { _ = unstructured.SetNestedField(o, "c", "metadata", "annotations", "a") },
		"finalizers": func(o map[string]any) {
			_ = unstructured.SetNestedSlice(o, []any{"evil.example/x"}, "metadata", "finalizers")
		},
		"immutable":   func(o map[string]any) { o["immutable"] = true },
		"binaryData":  func(o map[string]any) { o["binaryData"] = map[string]any{"x": "eA=="} },
		"another key": func(o map[string]any) { _ = unstructured.SetNestedField(o, "x", "data", "theirs.server") },
		"a new key":   func(o map[string]any) { _ = unstructured.SetNestedField(o, "x", "data", "NewKey") },
		"a key less":  func(o map[string]any) { unstructured.RemoveNestedField(o, "data", "theirs.server") },
		"no Corefile": func(o map[string]any) { unstructured.RemoveNestedField(o, "data", "Corefile") },
		"no data":     func(o map[string]any) { delete(o, "data") },
		"an owner": func(o map[string]any) {
			_ = unstructured.SetNestedSlice(o, []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "none", "uid": "00000000-0000-0000-0000-000000000001"}}, "metadata", "ownerReferences")
		},
	} {
		allowed(t, false, "a gateway changes of the cluster's DNS: "+what, gateway.update(o, configMaps, change))
		allowed(t, false, "a gateway changes with its own part of the cluster's DNS: "+what, gateway.update(o, configMaps, func(o map[string]any) {
			_ = unstructured.SetNestedField(o, good, "data", "Corefile")
			change(o)
		}))
		allowed(t, true, "an administrator changes of the cluster's DNS: "+what, admin.update(o, configMaps, change))
	}
	allowed(t, false, "a gateway deletes the cluster's DNS", gateway.remove(configMaps, "kube-system", "coredns"))

	// Hawser may write its own file, but not both the file and the block if the Corefile
	// imports the file.
	importing := ".:53 {\n    errors\n}\nimport custom/*.server\n"
	file, err := forward.File()
	if err != nil {
		t.Fatal(err)
	}
	both, err := corefile.Insert(importing, forward)
	if err != nil {
		t.Fatal(err)
	}
	admin.set("coredns", "Corefile", importing)
	custom := admin.set("coredns-custom", "hawser.server", "")
	eventually := func(want bool, what string, request func() error) { // policies read objects by a watch
		t.Helper()
		for end := time.Now().Add(time.Minute); time.Now().Before(end) && (request() == nil) != want; time.Sleep(50 * time.Millisecond) {
		}
		allowed(t, want, what, request())
	}
	eventually(true, "a file of its own", func() error { return gateway.write(custom, "hawser.server", file) })
	for _, m := range append(mutations(file, "", "53", random), file+"# x\n", strings.Replace(file, "    errors\n", "    errors\n    bind 127.0.0.1\n", 1)) {
		if err := gateway.write(custom, "hawser.server", m); err == nil && m != "" && m != file && m != strings.Replace(file, "clusterset.local:53 ", "", 1) && m != strings.Replace(file, "0.243.in-addr.arpa:53 ", "", 1) {
			t.Errorf("accepted as a file of its own:\n%s", m)
		}
	}
	custom = admin.set("coredns-custom", "hawser.server", file)
	eventually(false, "Hawser's part in a Corefile that imports the same", func() error {
		return gateway.write(admin.set("coredns", "Corefile", importing), "Corefile", both)
	})
	allowed(t, true, "no file of its own", gateway.write(custom, "hawser.server", ""))
	admin.set("coredns", "Corefile", both)
	custom = admin.set("coredns-custom", "hawser.server", "")
	eventually(false, "a file of its own, and a Corefile with the same", func() error { return gateway.write(custom, "hawser.server", file) })
	o = admin.set("coredns-custom", "their.server", "clusterset.local:53 {\n    loadbalance\n}\n")
	admin.set("coredns", "Corefile", importing)
	allowed(t, false, "a file of its own, and another with a zone of it", gateway.write(o, "hawser.server", file))
	partly, _ := forward.File(corefile.OtherFile{Name: "their.server", Text: "clusterset.local:53 {\n}\n"})
	eventually(true, "a file of its own without that zone", func() error { return gateway.write(o, "hawser.server", partly) })

	// The Corefile has the largest size that the API server's cost limits allow.
	large := ".:" + port + " {\n    errors\n}\n"
	for n := 0; len(large) < 32<<10; n++ {
		large += fmt.Sprintf("zone-%d.example:%s {\n    forward . 192.0.2.1 192.0.2.2 {\n        max_concurrent 1000\n    }\n    cache 30\n}\n", n, port)
	}
	text, err := corefile.Insert(large, forward)
	if err != nil {
		t.Fatal(err)
	}
	admin.set("coredns-custom", "", "")
	startedAt := time.Now()
	allowed(t, true, "Hawser's part in a Corefile of 32 KiB", gateway.write(admin.set("coredns", "Corefile", large), "Corefile", text))
	t.Logf("figure: a Corefile of %d bytes takes %s", len(text), time.Since(startedAt).Round(time.Millisecond))
	allowed(t, false, "another Corefile of 32 KiB", gateway.write(admin.set("coredns", "Corefile", large), "Corefile", text+"x"))
}

// TestDNSPolicyModes tests that gateways may write the configuration that `clusters[].dns` selects,
// and no other configuration of the cluster's DNS.
func TestDNSPolicyModes(t *testing.T) {
	t.Parallel()
	s := api.Start(t, "c1")
	admin, gateway, _ := callers(t, s)
	const bare = ".:53 {\n    bind __PILLAR__LOCAL__DNS__\n}\n"
	text, err := corefile.Insert(bare, forward)
	if err != nil {
		t.Fatal(err)
	}
	file, err := forward.File()
	if err != nil {
		t.Fatal(err)
	}
	const stubs = `{"example.org": ["192.0.2.1"], "example.net": ["192.0.2.2"]}`
	stub, err := corefile.InsertStub(stubs, forward)
	if err != nil {
		t.Fatal(err)
	}
	only, err := corefile.InsertStub("", forward)
	if err != nil {
		t.Fatal(err)
	}
	for _, mode := range []string{"auto", "coredns", "node-local", "coredns-custom", "kube-dns", "none"} {
		s.Install(t, strings.Replace(topology, "    podCIDRs:", "    dns: "+mode+"\n    podCIDRs:", 1))
		for _, tt := range []struct{ name, key, before, after, modes string }{
			{"coredns", "Corefile", bare, text, "auto coredns node-local"},
			{"node-local-dns", "Corefile", bare, text, "node-local"},
			{"coredns-custom", "hawser.server", "", file, "auto coredns-custom"},
			{"kube-dns", "stubDomains", stubs, stub, "kube-dns"},
			{"kube-dns", "stubDomains", "", only, "kube-dns"},
		} {
			o := admin.set(tt.name, tt.key, tt.before)
			want := strings.Contains(" "+tt.modes+" ", " "+mode+" ")
			for end := time.Now().Add(time.Minute); time.Now().Before(end) && (gateway.write(o, tt.key, tt.after) == nil) != want; time.Sleep(50 * time.Millisecond) {
			}
			allowed(t, want, mode+" writes "+tt.name, gateway.write(o, tt.key, tt.after))
			o = admin.set(tt.name, tt.key, tt.after)
			allowed(t, true, mode+" removes its part of "+tt.name, gateway.write(o, tt.key, tt.before))
			o = admin.set(tt.name, tt.key, tt.before)
			if tt.key != "stubDomains" || mode != "kube-dns" {
				continue
			}
			for _, m := range []string{
				`{"com":["6.6.6.6"]}`, strings.Replace(tt.after, "169.254.73.53", "6.6.6.6", 1), strings.Replace(tt.after, "clusterset.local", "com", 1), strings.Replace(tt.after, "{", "[", 1), "{", "x",
				strings.Replace(tt.after, "}", ",}", 1), strings.Replace(tt.after, "}", `,"com":["6.6.6.6"]}`, 1), strings.Replace(tt.after, "{", `{"com":["6.6.6.6"],`, 1), tt.after + "x", tt.after + tt.after,
			} {
				allowed(t, false, "stub domains "+m, gateway.write(o, tt.key, m))
			}
		}
	}
}
