package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"time"

	"hawser.dev/hawser/lab/underlayspec"
)

// state is the saved state of the lab: the assigned numbers and addresses, and the current faults.
// Only the daemon uses it.
type state struct {
	LAN           netip.Prefix            `json:"lan"`
	Numbers       map[string]int          `json:"numbers"`     // CLUSTER or CLUSTER/NODE: number in the names of underlay links
	Slots         map[string]int          `json:"slots"`       // CLUSTER/NODE: position within the cluster, from 0
	Directories   map[string]string       `json:"directories"` // CLUSTER/NODE: its name
	Pods          map[string]podSlot      `json:"pods"`        // CLUSTER/NAMESPACE/NAME, while the pod exists
	PreviousAddrs map[string][]netip.Addr `json:"before"`      // last addresses of a deleted pod that may be recreated
	Services      map[string][]netip.Addr `json:"services"`    // CLUSTER/NAMESPACE/NAME
	WAN           map[string]netip.Addr   `json:"wan"`         // dns:NAME, and CLUSTER/GATEWAY of gateways without endpoints
	Cursor        map[string]int          `json:"cursor"`      // by cluster: next worker of the round robin
	Ready         map[string]bool         `json:"ready"`       // CLUSTER/NAMESPACE/NAME: readiness that the user set

	Off         map[string]bool      `json:"off"`     // CLUSTER/NODE: powered off
	Stopped     map[string]bool      `json:"stopped"` // CLUSTER/NODE: its agent was stopped
	SyncStopped map[string]bool      `json:"noSync"`  // by cluster
	Lost        map[string]bool      `json:"lost"`    // CLUSTER/NODE: its tunnels drop all packets
	Agents      map[string]string    `json:"agents"`  // CLUSTER/NODE: program of its upgraded agent
	Links       map[string]linkFault `json:"links"`   // CLUSTER/NODE/lan or CLUSTER/NODE/wan

	// Renumbered maps addresses of the wide area to their new addresses after renumbering.
	Renumbered map[netip.Addr]netip.Addr `json:"moved,omitempty"`
	Underlay   underlayspec.File         `json:"-"` // from the lab's directory
	Overlay    bool                      `json:"-"` // from the lab's configuration

	Shares map[string][]netip.Prefix `json:"shares"` // CLUSTER/NODE: its part of the cluster's pod prefixes

	NICs map[string][]netip.Addr `json:"cards"` // CLUSTER/NODE of current and former gateways: their last addresses in the underlay
}

type podSlot struct {
	Node  string       `json:"node"`
	Owner string       `json:"owner,omitempty"`
	Addrs []netip.Addr `json:"addrs"`
}

// linkFault is the state of all faults of a node's link.
type linkFault struct {
	Cut     bool          `json:"cut,omitempty"`     // no carrier
	CutIn   bool          `json:"cutIn,omitempty"`   // the node receives no packets
	CutOut  bool          `json:"cutOut,omitempty"`  // packets of the node are dropped
	LossIn  float64       `json:"lossIn,omitempty"`  // 0..1 of received packets
	LossOut float64       `json:"lossOut,omitempty"` // 0..1 of sent packets
	Delay   time.Duration `json:"delay,omitempty"`   // in each direction
	MTU     int           `json:"mtu,omitempty"`     // bytes; longer packets are dropped, in each direction; 0 = no limit
	// Blocked protocols of received and sent packets, sorted and comma-separated.
	BlockIn  string `json:"blockIn,omitempty"`
	BlockOut string `json:"blockOut,omitempty"`
}

func newState() *state {
	return &state{
		Numbers: map[string]int{}, Slots: map[string]int{}, Directories: map[string]string{},
		Pods: map[string]podSlot{}, PreviousAddrs: map[string][]netip.Addr{},
		Services: map[string][]netip.Addr{}, WAN: map[string]netip.Addr{}, Cursor: map[string]int{}, Ready: map[string]bool{},
		Off: map[string]bool{}, Stopped: map[string]bool{}, SyncStopped: map[string]bool{}, Links: map[string]linkFault{},
		Lost: map[string]bool{}, Agents: map[string]string{}, NICs: map[string][]netip.Addr{}, Shares: map[string][]netip.Prefix{}, Renumbered: map[netip.Addr]netip.Addr{},
	}
}

func readState(path string) (*state, error) {
	s := newState()
	raw, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read state of the lab: %w", err)
	}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("read state of the lab %s: %w", path, err)
	}
	return s, nil
}

func (s *state) write(path string) error {
	raw, err := json.MarshalIndent(s, "", " ")
	if err != nil {
		return fmt.Errorf("write state of the lab: %w", err)
	}
	_, err = writeFile(path, raw, 0o600)
	return err
}

// number returns the number of a name, or assigns the next one.
func (s *state) number(name string) int {
	n, known := s.Numbers[name]
	if !known {
		n = len(s.Numbers) + 1 // numbers are never reused
		s.Numbers[name] = n
	}
	return n
}

// slot returns a node's position within its cluster.
func (s *state) slot(cluster, node string) int {
	id := cluster + "/" + node
	if n, known := s.Slots[id]; known {
		return n
	}
	n := len(s.nodesOf(cluster))
	s.Slots[id] = n
	return n
}

// nodesOf returns all current and former nodes of a cluster in the order of their slots.
func (s *state) nodesOf(cluster string) []string {
	var out []string
	for id := range s.Slots {
		if clusterOf(id) == cluster {
			out = append(out, id)
		}
	}
	slices.SortFunc(out, func(a, b string) int { return s.Slots[a] - s.Slots[b] })
	return out
}

// nodeDir returns the name of a node's directory.
func (s *state) nodeDir(cluster, node string) string {
	id := cluster + "/" + node
	if name, known := s.Directories[id]; known {
		return name
	}
	name := node
	for _, taken := range s.Directories {
		if taken == node {
			name = cluster + "." + node
		}
	}
	s.Directories[id] = name
	return name
}
