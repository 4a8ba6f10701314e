package render_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/render"
)

// policies returns the admission policies of a cluster by name.
func policies(t *testing.T, tree render.Tree, cluster string) map[string]admissionv1.ValidatingAdmissionPolicy {
	t.Helper()
	out, bindings := map[string]admissionv1.ValidatingAdmissionPolicy{}, map[string]bool{}
	for key, text := range build(t, tree, "clusters/"+cluster) {
		switch kind, _, _ := strings.Cut(key, " "); kind {
		case "ValidatingAdmissionPolicy":
			var p admissionv1.ValidatingAdmissionPolicy
			if err := yaml.UnmarshalStrict([]byte(text), &p); err != nil {
				t.Fatal(err)
			}
			out[p.Name] = p
		case "ValidatingAdmissionPolicyBinding":
			var b admissionv1.ValidatingAdmissionPolicyBinding
			if err := yaml.UnmarshalStrict([]byte(text), &b); err != nil {
				t.Fatal(err)
			}
			bindings[b.Spec.PolicyName] = true
			if fmt.Sprint(b.Spec.ValidationActions) != "[Deny]" {
				t.Errorf("%s: actions %v", b.Name, b.Spec.ValidationActions)
			}
			// Without its parameter a policy must not block requests of other users.
			if p := b.Spec.ParamRef; p != nil && (p.ParameterNotFoundAction == nil || *p.ParameterNotFoundAction != admissionv1.AllowAction) {
				t.Errorf("%s denies everything without its parameter", b.Name)
			}
		}
	}
	for name := range out {
		if !bindings[name] {
			t.Errorf("policy %s has no binding", name)
		}
	}
	return out
}

// TestPolicyOfClusterDNS compares the text that the policy of the cluster's DNS accepts with the
// text that agents write, for each cluster.
func TestPolicyOfClusterDNS(t *testing.T) {
	t.Parallel()
	literal := regexp.MustCompile(`'((?:[^'\\]|\\.)*)'`)
	for name, spec := range map[string]string{
		"plain": "", "domains": "  domain: a-b.example\n  extraDomains: [other.example]\n  dns: {address: 169.254.9.9}\n",
	} {
		tree := mustRender(t, input(t, strings.Replace(world(2, 3), "spec:\n", "spec:\n"+spec, 1)))
		f, err := render.FabricOf(tree)
		if err != nil {
			t.Fatal(err)
		}
		for i := range f.Clusters {
			forward := corefile.ForwardOf(f, &f.Clusters[i])
			policy, found := policies(t, tree, f.Clusters[i].Name)["hawser-cluster-dns"]
			if !found {
				t.Fatalf("%s: %s has no policy of the cluster's DNS", name, f.Clusters[i].Name)
			}
			variables := map[string]string{}
			for _, v := range policy.Spec.Variables {
				variables[v.Name] = v.Expression
			}
			if want := "['" + strings.Join(forward.Zones, "', '") + "'].filter("; !strings.HasPrefix(variables["zones"], want) {
				t.Errorf("%s: zones %s, want %s", name, variables["zones"], want)
			}
			var parts []string
			for _, m := range literal.FindAllStringSubmatch(variables["text"], -1) {
				parts = append(parts, strings.ReplaceAll(m[1], `\n`, "\n"))
			}
			if len(parts) != 15 {
				t.Fatalf("%s: the text has %d parts: %q", name, len(parts), parts)
			}
			zones := ""
			for _, zone := range forward.Zones {
				zones += zone + parts[3] + "53" + parts[4]
			}
			for bind, others := range map[string]string{"": ".:53 {\n}\n", "bind 169.254.20.10 10.96.0.10": ".:53 {\n    bind 169.254.20.10 10.96.0.10\n}\n"} {
				line := ""
				if bind != "" {
					line = parts[9] + bind + parts[10]
				}
				text, err := corefile.Insert(others, forward)
				if err != nil {
					t.Fatal(err)
				}
				if block, _, _ := corefile.SplitBlock(text); block != parts[1]+zones+parts[6]+line+parts[11]+parts[13] {
					t.Errorf("%s: the policy accepts %q, agents write %q", name, parts[1]+zones+parts[6]+line+parts[11]+parts[13], block)
				}
			}
			if file, err := forward.File(); err != nil || file != parts[2]+zones+parts[6]+parts[11] {
				t.Errorf("%s: the policy accepts %q, agents write %q (%v)", name, parts[2]+zones+parts[6]+parts[11], file, err)
			}
		}
	}
}

// TestPoliciesByAccount checks that policies match only the agents' accounts, so that no mistake in
// a policy blocks another user. The exception is hawser-recorded-addresses.
func TestPoliciesByAccount(t *testing.T) {
	t.Parallel()
	all := policies(t, mustRender(t, input(t, world(2, 3))), "c0")
	if len(all) < 9 {
		t.Fatalf("%d policies", len(all))
	}
	for name, p := range all {
		if name == "hawser-recorded-addresses" {
			continue
		}
		if c := p.Spec.MatchConditions; len(c) == 0 || !strings.HasPrefix(c[0].Expression, "request.userInfo.username ") || strings.Contains(c[0].Expression, "!=") {
			t.Errorf("%s is not bound to an account: %v", name, c)
		}
		if *p.Spec.FailurePolicy != admissionv1.Fail {
			t.Errorf("%s fails open", name)
		}
	}
}

// TestPrefixesOf compares the prefixes that conflict with a reverse zone with the prefixes that
// CoreDNS expands to that zone.
func TestPrefixesOf(t *testing.T) {
	t.Parallel()
	top := strings.Replace(world(2, 3), "spec:\n", "spec:\n  services: {cidr: 243.16.0.0/15}\n", 1)
	expression := ""
	for _, v := range policies(t, mustRender(t, input(t, top)), "c0")["hawser-cluster-dns"].Spec.Validations {
		if strings.Contains(v.Expression, "in-addr.arpa': r'") {
			expression = v.Expression
		}
	}
	patterns := regexp.MustCompile(`'([^']+\.arpa)': r'([^']*)'`).FindAllStringSubmatch(expression, -1)
	if len(patterns) != 4 { // two zones, twice
		t.Fatalf("patterns %q", patterns)
	}
	for key, want := range map[string]bool{
		"243.16.0.0/16": true, "243.17.0.0/16:53": true, "243.16.0.0/15": true, "243.0.0.0/12": true,
		"243.18.0.0/16": false, "10.0.0.0/8": false, "243.0.0.0/8": false, "243.16.0.0/24": false, "example.org": false,
	} {
		have := false
		for _, p := range patterns {
			have = have || regexp.MustCompile(p[2]).MatchString(key)
		}
		if have != want {
			t.Errorf("%s: %t", key, have)
		}
	}
}
