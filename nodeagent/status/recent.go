package status

import "time"

// Recent is what an agent remembers of the last hour: hawser-agent recent.
type Recent struct {
	Cluster string `json:"cluster"`
	Node    string `json:"node"`
	// EverySeconds is how often a sample is taken.
	EverySeconds int      `json:"everySeconds"`
	Samples      []Sample `json:"samples"` // the oldest first
	Kinds        []Kind   `json:"kinds"`   // by name
	Changes      []Note   `json:"changes"` // the last that were made here, the oldest first
}

// Sample is how a node was at one time.
type Sample struct {
	At    time.Time `json:"at"`
	Ready bool      `json:"ready"`
	Links int       `json:"links"` // to gateways of other clusters; 0 = the node is no gateway
	Up    int       `json:"up"`    // of them
	// RTTMicros is the average over the links in use, 0 = there are none; Loss (0..1) the
	// highest of them.
	RTTMicros int64   `json:"rttMicros"`
	Loss      float64 `json:"loss"`
	// RxRate and TxRate are what tunnels carried since the sample before, bytes a second.
	RxRate      int64  `json:"rxBytesPerSecond"`
	TxRate      int64  `json:"txBytesPerSecond"`
	Connections int    `json:"connections"` // that the kernel keeps track of
	Dropped     uint64 `json:"dropped"`     // packets, since the rules were written
	Drift       int    `json:"drift"`       // repairs, since the agent began
	Problems    int    `json:"problems"`
}

// Kind is one kind of object that an agent keeps as it should be: a stage of its rounds.
type Kind struct {
	Name    string `json:"name"`
	Objects int    `json:"objects"`       // ours, before the changes of the last round
	Drift   int    `json:"drift"`         // changes since the start that nobody asked for
	State   string `json:"state"`         // done | waits | failed
	Why     string `json:"why,omitempty"` // of waits and failed: the first reason
	Changed int    `json:"changed"`       // objects since the start
}

// Note is one change of a node.
type Note struct {
	At   time.Time `json:"at"`
	Text string    `json:"text"`         // as hawser-agent plan has it
	By   string    `json:"by,omitempty"` // topology path that causes it
}
