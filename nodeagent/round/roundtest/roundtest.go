// Package roundtest records the observations of running agents in each round, for tests that replay
// the rounds. A recording has no keys; a replay generates keys for each gateway.
package roundtest

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"hawser.dev/hawser/nodeagent/cluster/facts"
	"hawser.dev/hawser/nodeagent/model"
	"hawser.dev/hawser/nodeagent/observe/control"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/schema/fabric"
)

// Recording is the sequence of observations of one agent.
type Recording struct {
	Cluster, Node string
	Fabrics       map[string][]byte        // compressed by fabric.Compress; by digest
	Saved         round.SavedClusterStates // state that the previous agent saved
	Moments       []Moment
}

// Moment is the input of one round. Urgent marks a round that only selects links.
type Moment struct {
	At       time.Time
	Fabric   string // digest
	Urgent   bool
	Facts    model.Facts
	Resolved map[string][]netip.Addr
	Peers    round.PeerStatus // Spec is ignored: a replay has its own spec
}

// interval is the time between two requests to an agent.
const interval = 50 * time.Millisecond

// Record records the agent of a lab node until ctx is done. dir is the node's directory, whose base
// name is the node name CLUSTER-NAME. While the agent is down, the recording has a gap.
func Record(ctx context.Context, dir string) (Recording, error) {
	node := filepath.Base(dir)
	cluster, _, _ := strings.Cut(node, "-")
	r := Recording{Cluster: cluster, Node: node, Fabrics: map[string][]byte{}, Saved: round.SavedClusterStates{}}
	var last []byte
	for tick := time.NewTicker(interval); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return r, nil
		case <-tick.C:
		}
		var snapshot struct {
			Peers    round.PeerStatus        `json:"peers"`
			Resolved map[string][]netip.Addr `json:"resolved"`
		}
		runs, err := control.Get(ctx, filepath.Join(dir, "run", "agent.sock"), "/snapshot", &snapshot)
		packed, errFabric := os.ReadFile(filepath.Join(dir, "fabric", "fabric.json.gz"))
		if err != nil || !runs || errFabric != nil {
			continue // the agent restarts
		}
		_, digest, err := fabric.Decode(packed)
		if err != nil {
			continue // an error of the lab, not of the agent
		}
		r.Fabrics[digest] = packed
		snapshot.Peers.Spec = nil
		m := Moment{Fabric: digest, Facts: facts.Open(filepath.Join(dir, "facts"), "").Current().Facts, Resolved: snapshot.Resolved, Peers: snapshot.Peers}
		for i := range m.Peers.Links.Links {
			l := &m.Peers.Links.Links[i]
			// These fields change in each round, and no decision depends on them.
			l.RTT, l.LeastRTT, l.Answered, l.Loss = nil, 0, time.Time{}, 0
		}
		raw, err := json.Marshal(m)
		if err != nil {
			return r, fmt.Errorf("record %s: %w", node, err)
		}
		if !bytes.Equal(raw, last) {
			last, m.At = raw, time.Now().UTC()
			r.Moments = append(r.Moments, m)
		}
	}
}

// Write writes the recording to a file NAME.json.gz, as compressed JSON.
func (r Recording) Write(file string) error {
	raw, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("write recording of %s: %w", r.Node, err)
	}
	var packed bytes.Buffer
	w, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err == nil {
		_, err = w.Write(raw)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, packed.Bytes(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write recording of %s: %w", r.Node, err)
	}
	return nil
}

// Read reads a recording.
func Read(file string) (r Recording, err error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return r, fmt.Errorf("read recording: %w", err)
	}
	packed, err := gzip.NewReader(bytes.NewReader(raw))
	if err == nil {
		err = json.NewDecoder(packed).Decode(&r)
	}
	if err != nil {
		return r, fmt.Errorf("read recording %s: %w", file, err)
	}
	return r, nil
}
