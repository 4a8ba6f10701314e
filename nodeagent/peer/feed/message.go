package feed

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
)

const (
	// protocol is the version in hello and welcome.
	protocol = 1
	// maxHello bounds the frames before the other end proved who it is, and those
	// that a subscriber sends, in bytes.
	maxHello = 4 << 10
	// maxFrame bounds a data frame, in bytes.
	maxFrame = 1 << 20
	// fullFrame is where the sender begins another frame; one export more must
	// still fit below maxFrame.
	fullFrame = 256 << 10
	// maxExport bounds one export as JSON, in bytes.
	maxExport = maxFrame - fullFrame - 4<<10
)

// hello is the first frame, from the client.
type hello struct {
	Protocol  int    `json:"protocol"`
	Cluster   string `json:"cluster"`
	Gateway   string `json:"gateway,omitempty"`
	Node      string `json:"node,omitempty"` // instead of Gateway: a node of the server's cluster
	Server    string `json:"server"`         // cluster/gateway that the client means to reach
	Epoch     int    `json:"epoch"`
	Ephemeral []byte `json:"ephemeral,omitempty"` // of a node: X25519 public key made for this connection
	Proof     []byte `json:"proof,omitempty"`     // of a gateway
}

// welcome is the server's answer.
type welcome struct {
	Protocol int    `json:"protocol"`
	Refused  string `json:"refused,omitempty"`
	Proof    []byte `json:"proof,omitempty"`
}

// Kinds of frame.
const (
	kindSnapshot  = "snapshot"  // forget what was said before
	kindDelta     = "delta"     // on top of what was said before
	kindHeartbeat = "heartbeat" // nothing new
)

// frame is everything after hello and welcome.
type frame struct {
	Kind     string   `json:"kind"`
	Clusters []update `json:"clusters,omitempty"`
	// More is true when the next frame belongs to the same change; nothing counts
	// before the last frame is here.
	More bool `json:"more,omitempty"`
}

// update is what changed of one cluster.
type update struct {
	Cluster string            `json:"cluster"`
	Stale   bool              `json:"stale,omitempty"`
	Gone    bool              `json:"gone,omitempty"`    // no longer heard
	Exports []json.RawMessage `json:"exports,omitempty"` // model.LiveExport: new and changed ones
	Removed []string          `json:"removed,omitempty"` // namespace/name
	// Shape, Transit and Places are as in model.Live, always as they are now.
	Shape   string          `json:"shape,omitempty"`
	Transit json.RawMessage `json:"passing,omitempty"`
	Places  json.RawMessage `json:"places,omitempty"`
}

// pack makes the bytes of a frame: length (4 bytes, big endian), then JSON.
func pack(content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(raw) > maxFrame {
		return nil, fmt.Errorf("encode frame: %d bytes are more than %d", len(raw), maxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(raw)), uint32(len(raw))), raw...), nil
}

// readFrame reads one frame of at most limit bytes. Nothing is allocated for a
// length above the limit.
func readFrame(r io.Reader, limit int, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	length := binary.BigEndian.Uint32(head[:])
	if uint64(length) > uint64(limit) {
		return fmt.Errorf("read frame: %d bytes are more than %d", length, limit)
	}
	raw := make([]byte, length)
	if _, err := io.ReadFull(r, raw); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	return nil
}
