package keys

import (
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/status"
)

// gateway returns the status of a gateway with one link.
func gw(cluster, remote string, epoch int, inForce ...int) status.Status {
	return status.Status{Cluster: cluster, Node: "n", Gateway: "a", Epochs: inForce, Connections: []status.Connection{
		{Gateway: "a", RemoteCluster: remote, RemoteGateway: "a", Driver: "wireguard (kernel)", Epoch: epoch},
	}}
}

// TestRotation checks that the old epoch is removed only when all agents are known not to use it.
func TestRotation(t *testing.T) {
	t.Parallel()
	worker := status.Status{Cluster: "g1", Node: "w"}
	withoutEpochs := gw("g3", "g1", 0, 1)
	tests := map[string]struct {
		agents []status.Status
		silent []status.Unreachable
		want   string // the last lines
	}{
		"one epoch": {[]status.Status{gw("g1", "g2", 1, 1), gw("g2", "g1", 1, 1), worker}, nil,
			"\nevery link that has keys uses epoch 1; to rotate write keys: {epochs: [1, 2]}\n"},
		"one has the new epoch": {[]status.Status{gw("g1", "g2", 1, 1, 2), gw("g2", "g1", 1, 1)}, nil,
			"\ng2/a does not have epoch 2 yet\n1 of 1 links without epoch 2: wait\n"},
		"one end uses it": {[]status.Status{gw("g1", "g2", 2, 1, 2), gw("g2", "g1", 1, 1, 2)}, nil,
			"\n1 of 1 links without epoch 2: wait\n"},
		"two links": {[]status.Status{gw("g1", "g2", 1, 1, 2), gw("g2", "g1", 1, 1, 2), gw("g3", "g1", 2, 1, 2)}, nil,
			"\n1 of 2 links without epoch 2: wait\n"},
		"all use it": {[]status.Status{gw("g1", "g2", 2, 1, 2), gw("g2", "g1", 2, 1, 2)}, nil,
			"\nepoch 1 is unused: set keys: {epochs: [2]}\n"},
		"one is silent": {[]status.Status{gw("g1", "g2", 2, 1, 2)}, []status.Unreachable{{Agent: "g2", Error: "timeout"}},
			"\nthe agent at g2 does not answer: timeout\nsome gateways may not have epoch 2 yet: wait\n"},
		"one is late to drop": {[]status.Status{gw("g1", "g2", 2, 2), gw("g2", "g1", 2, 1, 2)}, nil,
			"\nepoch 1 is unused: set keys: {epochs: [2]}\n"},
		"no keys at all":  {[]status.Status{worker}, nil, "\nno gateway has keys\n"},
		"drivers without": {[]status.Status{withoutEpochs}, nil, "\nevery link that has keys uses epoch 1; to rotate write keys: {epochs: [1, 2]}\n"},
	}
	for name, tt := range tests {
		r := rotationOf(tt.agents, tt.silent)
		if text := r.String(); !strings.HasSuffix(text, tt.want) {
			t.Errorf("%s:\n%s", name, text)
		}
	}
}
