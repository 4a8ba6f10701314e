// Package roundtest records what running agents see, round after round, for tests that make
// the same rounds again. A recording holds no keys: a replay gives each gateway keys of its
// own.
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

// Recording is what one agent observed, one moment after the other.
type Recording struct {
	Cluster, Node string
	Fabrics       map[string][]byte // by digest, as fabric.Compress gives them
	Kept          round.KeptLive    // what the run before heard
	Moments       []Moment
}

// Moment is what a round had to go by. Urgent says that it decided about links alone.
type Moment struct {
	At       time.Time
	Fabric   string // digest
	Urgent   bool
	Facts    model.Facts
	Resolved map[string][]netip.Addr
	Peers    round.PeerStatus // Aim is not used: a replay knows what it aimed at
}

// every is how often an agent is asked.
const every = 50 * time.Millisecond

// Record asks the agent of a node of a lab again and again what it sees, until the context
// ends. dir is the node's folder, whose name, CLUSTER-NAME, is that of the node. An agent
// that is gone for a while leaves a hole.
func Record(ctx context.Context, dir string) (Recording, error) {
	node := filepath.Base(dir)
	cluster, _, _ := strings.Cut(node, "-")
	r := Recording{Cluster: cluster, Node: node, Fabrics: map[string][]byte{}, Kept: round.KeptLive{}}
	var last []byte
	for tick := time.NewTicker(every); ; {
		select {
		case <-ctx.Done():
			tick.Stop()
			return r, nil
		case <-tick.C:
		}
		var sight struct {
			Peers    round.PeerStatus        `json:"peers"`
			Resolved map[string][]netip.Addr `json:"resolved"`
		}
		runs, err := control.Get(ctx, filepath.Join(dir, "run", "agent.sock"), "/sight", &sight)
		packed, errFabric := os.ReadFile(filepath.Join(dir, "fabric", "fabric.json.gz"))
		if err != nil || !runs || errFabric != nil {
			continue // it restarts
		}
		_, digest, err := fabric.Decode(packed)
		if err != nil {
			continue // a fault of the lab
		}
		r.Fabrics[digest] = packed
		sight.Peers.Spec = nil
		m := Moment{Fabric: digest, Facts: facts.Open(filepath.Join(dir, "facts"), "").Current().Facts, Resolved: sight.Resolved, Peers: sight.Peers}
		for i := range m.Peers.Links.Links {
			l := &m.Peers.Links.Links[i]
			l.RTT, l.LeastRTT, l.Answered, l.Loss = nil, 0, time.Time{}, 0 // decide nothing, and always change
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

// Write puts a recording into a file NAME.json.gz.
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
