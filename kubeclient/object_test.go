package kubeclient

import "testing"

func TestInventoryLines(t *testing.T) {
	t.Parallel()
	for _, line := range []string{"v1 Namespace hawser-system", "apps/v1 DaemonSet hawser-system/hawser-agent",
		"rbac.authorization.k8s.io/v1 ClusterRole system:odd:name"} {
		id, err := ParseLine(line)
		if err != nil || id.Line() != line {
			t.Errorf("%q is read as %+v (%v), written %q", line, id, err, id.Line())
		}
	}
	for line, want := range map[string]string{
		"v1 Namespace": `inventory line "v1 Namespace" is not "version kind name"`,
		"a/b/c D e":    `inventory line "a/b/c D e": unexpected GroupVersion string: a/b/c`,
	} {
		if _, err := ParseLine(line); err == nil || err.Error() != want {
			t.Errorf("%q returns %v, want %s", line, err, want)
		}
	}
}

func TestReason(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"dial tcp 1.2.3.4:6443: connect: connection refused": "cannot be reached: dial tcp 1.2.3.4:6443: connect: connection refused",
		"apply A: x\napply B: y":                             "apply A: x; apply B: y",
	}
	for have, want := range tests {
		if got := ErrorText(errText(have)); got != want {
			t.Errorf("%q returns %q, want %q", have, got, want)
		}
	}
}

type errText string

func (e errText) Error() string { return string(e) }
