// Package nodeagent runs one node of a clusterset: it reads fabric, keys and facts, projects
// them to the desired state of the node, and continuously converges tunnels, routes, NAT and
// DNS to it.
package nodeagent

import (
	"fmt"
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/kube"
)

// Config is the configuration of an agent.
type Config struct {
	Cluster   string // name of this node's cluster in the topology
	Node      string // this node's name
	FabricDir string // directory with fabric.json.gz, whole or in parts (.0, .1, ...)
	KeysDir   string // directory with keys.age; gateways only, empty elsewhere
	Identity  string // file with the cluster's age identity; gateways only
	// Trust is a file of pinned signers (schema/fabric/trust). If it is empty or never existed,
	// the agent accepts documents of any signer.
	Trust string
	// Kube is the API server of the facts. Without it the facts come from FactsDir, a directory
	// with Kubernetes objects in YAML.
	Kube     kube.Config
	FactsDir string
	// LeasesDir is a directory that the nodes of a cluster without an API share. It has the
	// leases of gateways that labels select. Empty = this node holds no such gateway.
	LeasesDir string
	// HawserNodesDir is a directory that the nodes of a cluster without an API share, to which
	// their agents write their HawserNodes. Empty = the nodes write and need none.
	HawserNodesDir string
	StateDir       string // last good inputs, previous values of sysctls
	Socket         string // unix socket for status
	VICI           string // socket of the host's charon; empty = the agent starts its own charon for IPsec
	// DNSListen overrides the address of the DNS server; the default port is 53. Invalid = the
	// address in the fabric.
	DNSListen netip.AddrPort
	ProcSys   string        // writable directory of the kernel's settings [/proc/sys]
	Metrics   []string      // host:port of each HTTP server for /metrics, /healthz and /readyz
	Resync    time.Duration // maximum time between two rounds [30s]
	FeedStale time.Duration // time for which the data of a lost feed stays valid [30s]
	Version   string
}

// Validate returns an error that names every missing setting.
func (c Config) Validate() error {
	required := []struct{ flag, value string }{
		{"--cluster", c.Cluster}, {"--node", c.Node}, {"--fabric", c.FabricDir},
		{"--facts", c.FactsDir}, {"--state", c.StateDir}, {"--socket", c.Socket},
	}
	if err := c.Kube.Validate(); err != nil {
		return err
	}
	for _, r := range required {
		if r.value == "" && (r.flag != "--facts" || !c.Kube.IsSet()) {
			return fmt.Errorf("%s is required: see hawser-agent run --help", r.flag)
		}
	}
	return nil
}
