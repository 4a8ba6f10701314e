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
	LAN      netip.Prefix            `json:"lan"`
	Numbers  map[string]int          `json:"numbers"`  // cluster and cluster/node: names its links in the underlay
	Slots    map[string]int          `json:"slots"`    // cluster/node: position within the cluster, from 0
	Folders  map[string]string       `json:"folders"`  // cluster/node: its folder
	Pods     map[string]podSlot      `json:"pods"`     // cluster/namespace/name, while the pod exists
	Before   map[string][]netip.Addr `json:"before"`   // the last addresses of a pod that may come back
	Services map[string][]netip.Addr `json:"services"` // cluster/namespace/name
	WAN      map[string]netip.Addr   `json:"wan"`      // dns:NAME, and cluster/gateway of those without endpoints
	Cursor   map[string]int          `json:"cursor"`   // by cluster: the next worker of the round robin
	Ready    map[string]bool         `json:"ready"`    // cluster/namespace/name: set by hand

	Off         map[string]bool      `json:"off"`     // cluster/node: without power
	Stopped     map[string]bool      `json:"stopped"` // cluster/node: its agent was stopped
	SyncStopped map[string]bool      `json:"noSync"`  // by cluster
	Lost        map[string]bool      `json:"lost"`    // cluster/node: its tunnels drop all packets
	Agents      map[string]string    `json:"agents"`  // cluster/node: the program that its agent was upgraded to
	Links       map[string]linkFault `json:"links"`   // cluster/node/lan or cluster/node/wan

	// Moved maps addresses of the wide area to their new addresses after renumbering.
	Moved    map[netip.Addr]netip.Addr `json:"moved,omitempty"`
	Underlay underlayspec.File         `json:"-"` // of the lab's folder
	Overlay  bool                      `json:"-"` // of the lab's configuration

	Shares map[string][]netip.Prefix `json:"shares"` // cluster/node: its part of the cluster's pod prefixes

	NICs map[string][]netip.Addr `json:"cards"` // cluster/node of every node that was a gateway: its last addresses in the underlay
}

type podSlot struct {
	Node  string       `json:"node"`
	Owner string       `json:"owner,omitempty"`
	Addrs []netip.Addr `json:"addrs"`
}

// linkFault holds the faults of one link of a node.
type linkFault struct {
	Cut     bool          `json:"cut,omitempty"`     // no carrier
	CutIn   bool          `json:"cutIn,omitempty"`   // the node receives nothing
	CutOut  bool          `json:"cutOut,omitempty"`  // sent packets are dropped
	LossIn  float64       `json:"lossIn,omitempty"`  // 0..1 of received packets
	LossOut float64       `json:"lossOut,omitempty"` // 0..1 of sent packets
	Delay   time.Duration `json:"delay,omitempty"`   // in each direction
	MTU     int           `json:"mtu,omitempty"`     // longer packets are dropped, in each direction; 0: no limit
	// Blocked protocols of received and sent packets, sorted, separated by commas.
	BlockIn  string `json:"blockIn,omitempty"`
	BlockOut string `json:"blockOut,omitempty"`
}

func newState() *state {
	return &state{
		Numbers: map[string]int{}, Slots: map[string]int{}, Folders: map[string]string{},
		Pods: map[string]podSlot{}, Before: map[string][]netip.Addr{},
		Services: map[string][]netip.Addr{}, WAN: map[string]netip.Addr{}, Cursor: map[string]int{}, Ready: map[string]bool{},
		Off: map[string]bool{}, Stopped: map[string]bool{}, SyncStopped: map[string]bool{}, Links: map[string]linkFault{},
		Lost: map[string]bool{}, Agents: map[string]string{}, NICs: map[string][]netip.Addr{}, Shares: map[string][]netip.Prefix{}, Moved: map[netip.Addr]netip.Addr{},
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

// nodesOf lists all current and former nodes of a cluster, in the order of their slots.
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

// folder returns the name of a node's folder.
func (s *state) folder(cluster, node string) string {
	id := cluster + "/" + node
	if name, known := s.Folders[id]; known {
		return name
	}
	name := node
	for _, taken := range s.Folders {
		if taken == node {
			name = cluster + "." + node
		}
	}
	s.Folders[id] = name
	return name
}
