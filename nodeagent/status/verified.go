package status

// Verification is what a node reached of the exports: hawser-agent verify.
type Verification struct {
	Cluster string     `json:"cluster"`
	Node    string     `json:"node"`
	Results []Verified `json:"results"`
}

// Verified is what became of one name.
type Verified struct {
	Export  string   `json:"export"`            // namespace/name
	Cluster string   `json:"cluster,omitempty"` // of which the name is; empty = the name of the whole service
	Name    string   `json:"name"`
	Reached []string `json:"reached,omitempty"` // address:port
	Error   string   `json:"error,omitempty"`   // what was not reached, and why; empty = all was
	Skipped string   `json:"skipped,omitempty"` // why it was not tried; empty = it was
	Micros  int64    `json:"micros,omitempty"`  // lookups and connections, one after the other
}
