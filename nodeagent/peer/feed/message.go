package feed

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"

	"hawser.dev/hawser/nodeagent/model"
)

const (
	// protocol is the version in hello and welcome.
	protocol = 2
	// maxSmallFrame bounds a hello, a welcome and a poll, in bytes.
	maxSmallFrame = 4 << 10
	// maxFrame bounds a frame of an update, in bytes.
	maxFrame = 1 << 20
	// fullFrame is the size of a frame at which the sender starts another one, in bytes. One
	// more export must fit below maxFrame.
	fullFrame = 256 << 10
	// maxExport bounds one export as JSON, in bytes.
	maxExport = maxFrame - fullFrame - 4<<10
)

// hello is the first frame of the client.
type hello struct {
	Protocol  int    `json:"protocol"`
	Cluster   string `json:"cluster"`
	Gateway   string `json:"gateway,omitempty"`
	Node      string `json:"node,omitempty"` // node of the server's cluster, instead of Gateway
	Server    string `json:"server"`         // cluster/gateway of the server
	Epoch     int    `json:"epoch"`
	Ephemeral []byte `json:"ephemeral,omitempty"` // of a node: X25519 public key for this connection
	Proof     []byte `json:"proof,omitempty"`     // of a gateway
}

// welcome is the reply of the server to hello.
type welcome struct {
	Protocol int    `json:"protocol"`
	Refused  string `json:"refused,omitempty"`
	Proof    []byte `json:"proof,omitempty"`
}

// poll requests the next update. The server replies when it has a newer version, or without changes
// after Timing.Heartbeat.
type poll struct {
	Version uint64 `json:"version"` // of the last update; 0 on a new connection
}

// update is the reply to a poll. It has the changes between the version of the poll and Version.
type update struct {
	Version uint64   `json:"version"`
	Changes []change `json:"changes,omitempty"`
	// More reports that the next frame belongs to the same update.
	More bool `json:"more,omitempty"`
}

// change sets or removes one export of a cluster, or the cluster.
type change struct {
	Cluster string `json:"cluster"`
	// Export is the namespace/name of the export. Empty: the change applies to the cluster.
	Export string `json:"export,omitempty"`
	// State is a model.ExportState, or a clusterInfo if Export is empty. If it is absent, the
	// change removes the export, or the cluster with all its exports.
	State json.RawMessage `json:"state,omitempty"`
}

// clusterInfo is the state of a cluster except its exports.
type clusterInfo struct {
	Stale     bool                  `json:"stale,omitempty"`
	Shape     string                `json:"shape,omitempty"`
	Transit   *model.TransitAdvert  `json:"transit,omitempty"`
	Endpoints *model.EndpointAdvert `json:"endpoints,omitempty"`
}

// encodeFrame returns a frame: its length (4 bytes, big endian), then JSON.
func encodeFrame(content any) ([]byte, error) {
	raw, err := json.Marshal(content)
	if err != nil {
		return nil, fmt.Errorf("encode frame: %w", err)
	}
	if len(raw) > maxFrame {
		return nil, fmt.Errorf("encode frame: %d bytes, the limit is %d", len(raw), maxFrame)
	}
	return append(binary.BigEndian.AppendUint32(make([]byte, 0, 4+len(raw)), uint32(len(raw))), raw...), nil
}

func writeFrame(w io.Writer, content any) error {
	raw, err := encodeFrame(content)
	if err != nil {
		return err
	}
	if _, err := w.Write(raw); err != nil {
		return fmt.Errorf("write frame: %w", err)
	}
	return nil
}

// readFrame reads one frame of at most limit bytes. It allocates no memory for a longer frame.
func readFrame(r io.Reader, limit int, into any) error {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return fmt.Errorf("read frame: %w", err)
	}
	length := binary.BigEndian.Uint32(head[:])
	if uint64(length) > uint64(limit) {
		return fmt.Errorf("read frame: %d bytes, the limit is %d", length, limit)
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
