package render_test

import (
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/nodeagent/objects/corefile"
	"hawser.dev/hawser/render"
)

// dnsPolicy gives the expressions of the policy of the cluster's own DNS, by name, and
// the patterns in them; CEL and Go have the same regular expressions.
func dnsPolicy(t *testing.T, tree render.Tree) map[string]string {
	t.Helper()
	for _, text := range build(t, tree, "clusters/c0") {
		var p admissionv1.ValidatingAdmissionPolicy
		if yaml.Unmarshal([]byte(text), &p) != nil || p.Kind != "ValidatingAdmissionPolicy" || p.Name != "hawser-cluster-dns" {
			continue
		}
		out := map[string]string{}
		for _, v := range p.Spec.Variables {
			if raw, is := strings.CutPrefix(v.Expression, "r'"); is {
				out[v.Name] = strings.TrimSuffix(raw, "'")
			}
		}
		for _, v := range p.Spec.Validations {
			for _, m := range regexp.MustCompile(`variables\.key == '([^']+)' && variables\.now\.matches\(r'([^']*)' \+ variables\.forward \+ r?'([^']*)'\)`).FindAllStringSubmatch(v.Expression, -1) {
				out[m[1]] = m[2] + out["forward"] + m[3]
			}
		}
		return out
	}
	t.Fatal("there is no policy of the cluster's DNS")
	return nil
}

// TestPolicyOfClusterDNS: what gateways write into the cluster's own DNS is what the
// policy lets them, and nothing that says more.
func TestPolicyOfClusterDNS(t *testing.T) {
	t.Parallel()
	for name, spec := range map[string]string{
		"plain": "", "domains": "  domain: a-b.example\n  extraDomains: [other.example]\n  dns: {address: 169.254.9.9}\n",
	} {
		in := input(t, strings.Replace(world(2, 3), "spec:\n", "spec:\n"+spec, 1))
		tree := mustRender(t, in)
		f, err := render.FabricOf(tree)
		if err != nil {
			t.Fatal(err)
		}
		patterns := dnsPolicy(t, tree)
		forward := corefile.ForwardOf(f, &f.Clusters[0])
		file, err := forward.File()
		if err != nil {
			t.Fatal(err)
		}
		for _, others := range []string{".:53 {\n    forward . 1.1.1.1\n}\n", "x:53 {\n    bind 169.254.20.10 10.96.0.10\n}\n.:1053 {\n    bind 169.254.20.10 fd00::a\n}"} {
			text, err := corefile.Insert(others, forward)
			if err != nil {
				t.Fatal(err)
			}
			block, _, _ := corefile.Block(text)
			if found := regexp.MustCompile(patterns["marks"]).FindString(text); found != block {
				t.Errorf("%s: the policy takes %q for ours, which is %q", name, found, block)
			}
			for key, ours := range map[string]string{"Corefile": block, "hawser.server": file} {
				lets := regexp.MustCompile(patterns[key]).MatchString
				if !lets(ours) {
					t.Errorf("%s: the policy refuses what gateways write into %s:\n%s\n%s", name, key, ours, patterns[key])
				}
				for what, worse := range map[string]string{
					"every domain":   strings.Replace(ours, f.Domain+":", ".:", 1),
					"another domain": strings.Replace(ours, f.Domain+":", "cluster.local:", 1),
					"a longer one":   strings.Replace(ours, f.Domain+":", "x"+f.Domain+":", 1),
					"no dot":         strings.Replace(ours, f.Domain+":", strings.Replace(f.Domain, ".", "x", 1)+":", 1),
					"another server": strings.Replace(ours, forward.Servers[0].String(), "6.6.6.6", 1),
					"one more":       strings.Replace(ours, forward.Servers[0].String(), forward.Servers[0].String()+" 6.6.6.6", 1),
					"a directive":    strings.Replace(ours, "    errors\n", "    errors\n    import /etc/x\n", 1),
					"another block":  ours + ".:53 {\n    forward . 6.6.6.6\n}\n",
				} {
					if worse == ours || lets(worse) {
						t.Errorf("%s: %s in %s is let in:\n%s", name, what, key, worse)
					}
				}
			}
		}
	}
}
