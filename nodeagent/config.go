// Package nodeagent runs one node of a clusterset: it reads fabric, keys and
// facts, projects them to the state that the node should have, and converges
// tunnels, routes, NAT and DNS to it for as long as it runs.
package nodeagent

import (
	"fmt"
	"net/netip"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/kube"
)

// Config is what an agent is started with.
type Config struct {
	Cluster   string // this node's cluster, as the topology names it
	Node      string // this node's name
	FabricDir string // folder with fabric.json.gz, whole or in parts (.0, .1, ...)
	KeysDir   string // folder with keys.age; gateways only, empty elsewhere
	Identity  string // file with the cluster's age identity; gateways only
	// Trust is a file of pinned signers (schema/fabric/trust). Empty, or never there:
	// what is delivered counts, whoever signed it.
	Trust string
	// Kube is the API server from which facts come. Without one they come from
	// FactsDir, a folder with Kubernetes objects in YAML.
	Kube     kube.Config
	FactsDir string
	// LeasesDir is a folder that the nodes of the cluster share, by which they agree on
	// gateways whose nodes labels pick, where there is no API; empty = they hold none.
	LeasesDir string
	// HawserNodesDir is a folder that the nodes of the cluster share, to which their agents write
	// their HawserNodes, where there is no API; empty = they write none, and need none.
	HawserNodesDir string
	StateDir       string // last good inputs, remembered sysctls
	Socket         string // unix socket for status
	VICI           string // socket of a charon that the host runs; empty = our own is started when IPsec is used
	// DNSListen overrides where names are answered; the port is 53 unless given.
	// Invalid = the address that the fabric says.
	DNSListen netip.AddrPort
	ProcSys   string        // where the kernel's settings can be written [/proc/sys]
	Metrics   []string      // host:port of each HTTP server for /metrics, /healthz and /readyz
	Resync    time.Duration // longest time between two passes [30s]
	FeedStale time.Duration // how long a lost feed's data counts [30s]
	Version   string
}

// Validate names every setting that is missing.
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
