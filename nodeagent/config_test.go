package nodeagent

import (
	"testing"

	"hawser.dev/hawser/nodeagent/cluster/kube"
)

func TestConfigOfTheAPI(t *testing.T) {
	t.Parallel()
	whole := Config{Cluster: "g1", Node: "n", FabricDir: "f", StateDir: "s", Socket: "x"}
	tests := []struct {
		name     string
		kube     kube.Config
		factsDir string
		want     string
	}{
		{"directory", kube.Config{}, "facts", ""},
		{"neither", kube.Config{}, "", "--facts is required: see hawser-agent run --help"},
		{"in a pod", kube.Config{InCluster: true}, "", ""},
		{"kubeconfig", kube.Config{Kubeconfig: "k", Context: "c"}, "", ""},
		{"both", kube.Config{InCluster: true, Kubeconfig: "k"}, "", "--kubernetes and --kubeconfig: use only one; --kubernetes is for pods"},
		{"context alone", kube.Config{Context: "c"}, "facts", "--context needs --kubeconfig"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			config := whole
			config.Kube, config.FactsDir = tt.kube, tt.factsDir
			have := ""
			if err := config.Validate(); err != nil {
				have = err.Error()
			}
			if have != tt.want {
				t.Errorf("want %q, have %q", tt.want, have)
			}
		})
	}
}
