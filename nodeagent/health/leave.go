package health

// Leave gives the snapshot with some gateways ranked Draining at best, as they
// left the fabric and only linger.
func (s Snapshot) Leave(gateways []Peer) Snapshot {
	s.leaving = gateways
	return s
}

// lowered gives the rank of a link whose gateways may be about to leave.
func (s *Snapshot) lowered(rank Rank, local, remote Peer) Rank {
	for _, p := range s.leaving {
		if p == local || p == remote {
			return min(rank, Draining)
		}
	}
	return rank
}

// SnapshotOf makes a snapshot of links, as a prober of the gateway named by self
// would give it; on other nodes the gateway's name is empty.
func SnapshotOf(self Peer, links []Link) Snapshot {
	byPeer := make(map[Peer][]int, len(links))
	for i, link := range links {
		byPeer[link.Target.Peer] = append(byPeer[link.Target.Peer], i)
	}
	return Snapshot{Links: links, self: self, byPeer: byPeer}
}
