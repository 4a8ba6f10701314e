package health

// Rank says how fit a link is to carry traffic. Both ends rank a link, and the
// lower of the two counts.
type Rank uint8

// The ranks, from the worst to the best.
const (
	Down     Rank = iota // no probe gets through
	Alone                // it works, but one of its gateways reaches no other node of its cluster
	Draining             // it works, but one of its gateways is to be left, or is not ready yet
	Unsteady             // it works, but fell too often of late
	Good
)

// String gives the name in lower case.
func (r Rank) String() string {
	switch r {
	case Down:
		return "down"
	case Alone:
		return "alone"
	case Draining:
		return "draining"
	case Unsteady:
		return "unsteady"
	}
	return "good"
}
