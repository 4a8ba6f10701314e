package ui

import (
	"fmt"
	"testing"
	"time"

	"hawser.dev/hawser/nodeagent/status"
)

// BenchmarkPicture draws a mesh of 300 clusters whose agents all answer, as the page does every half
// second while it is open.
func BenchmarkPicture(b *testing.B) {
	const clusters = 300
	names := make([]string, clusters)
	for i := range names {
		names[i] = fmt.Sprintf("c%03d", i)
	}
	set := newFake(names...).set
	reports := Reports{HasAgents: true}
	for _, from := range names {
		s := agentOf(from, "", status.Connected, 0)
		s.Connections = nil
		for _, to := range names {
			if to != from {
				s.Connections = append(s.Connections, agentOf(from, to, status.Connected, 1000).Connections...)
			}
		}
		reports.Agents = append(reports.Agents, s)
	}
	at := time.Now()
	p := newSnapshot(Input{Clusterset: set, Reports: reports, At: at}, nil)
	for b.Loop() {
		at = at.Add(time.Second)
		p = newSnapshot(Input{Clusterset: set, Reports: reports, At: at}, p)
	}
}
