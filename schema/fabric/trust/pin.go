package trust

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Pin is a pinned signer: an agent trusts the key before it has read any document.
type Pin struct {
	Clusterset string
	Cluster    string // * = all of the clusterset
	Key        string // in authorized_keys format, without comment
	// Floors are the lowest revisions that a node without saved state accepts. All pins of a file
	// have the same floors. They do not identify a pin.
	Floors Revisions
}

// Revisions contains the highest known revision of each kind of document.
type Revisions struct {
	Fabric int64 `json:"fabric,omitempty"`
	Keys   int64 `json:"keys,omitempty"`
}

// Max returns the higher revision of each kind.
func (r Revisions) Max(o Revisions) Revisions {
	return Revisions{Fabric: max(r.Fabric, o.Fabric), Keys: max(r.Keys, o.Keys)}
}

// byKind returns the revision of a kind.
func (r *Revisions) byKind(kind Kind) *int64 {
	if kind == Keys {
		return &r.Keys
	}
	return &r.Fabric
}

// Prefixes of comments in a file of pins that set its floors. OpenSSH ignores comments.
const (
	fabricFloor = "# revision: "
	keysFloor   = "# keys revision: "
)

// RaiseFloors returns a file of pins with at least these floors. The other lines do not
// change, and no floor is lowered. It fails if the file cannot be read.
func RaiseFloors(raw []byte, to Revisions) ([]byte, error) {
	pins, err := ParsePins(raw)
	if err != nil {
		return nil, err
	}
	current := pins[0].Floors
	to = to.Max(current)
	if to == current {
		return raw, nil
	}
	var out strings.Builder
	for _, floor := range []struct {
		prefix   string
		revision int64
	}{{fabricFloor, to.Fabric}, {keysFloor, to.Keys}} {
		if floor.revision > 0 {
			out.WriteString(floor.prefix + strconv.FormatInt(floor.revision, 10) + "\n")
		}
	}
	for line := range strings.Lines(string(raw)) {
		text := strings.TrimSpace(line)
		if !strings.HasPrefix(text, fabricFloor) && !strings.HasPrefix(text, keysFloor) {
			out.WriteString(line)
		}
	}
	return []byte(out.String()), nil
}

// String returns the pin as a line of an allowed_signers file.
func (p Pin) String() string { return p.Clusterset + "/" + p.Cluster + " " + p.Key }

// PinFile returns the pinned signers of a cluster (* = all clusters) in the format of ParsePins. It
// is empty without signers. The keys are in authorized_keys format.
func PinFile(clusterset, cluster string, signers []string) string {
	var out strings.Builder
	for _, key := range signers {
		out.WriteString(Pin{Clusterset: clusterset, Cluster: cluster, Key: key}.String() + "\n")
	}
	return out.String()
}

// ParsePins reads a file of pins, in the format of OpenSSH's allowed_signers: one
// CLUSTERSET/CLUSTER KEYTYPE KEY a line, with comments after #. The comments
// "# revision: N" and "# keys revision: N" are floors. Errors name the line. A file without
// signers is an error.
func ParsePins(raw []byte) ([]Pin, error) {
	var out []Pin
	var floors Revisions
	for i, line := range bytes.Split(raw, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		for prefix, floor := range map[string]*int64{fabricFloor: &floors.Fabric, keysFloor: &floors.Keys} {
			number, ok := strings.CutPrefix(text, prefix)
			if !ok {
				continue
			}
			n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
			if err != nil || n < 1 {
				return nil, fmt.Errorf("line %d: the revision %q is not a positive number", i+1, number)
			}
			*floor = max(*floor, n)
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		pin, err := parsePin(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if !slices.Contains(out, pin) {
			out = append(out, pin)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no signer in it: it needs lines CLUSTERSET/CLUSTER ssh-ed25519 KEY (hawser keys signers prints them)")
	}
	for i := range out {
		out[i].Floors = floors
	}
	return out, nil
}

func parsePin(text string) (Pin, error) {
	fields := strings.Fields(text)
	if len(fields) > 1 && strings.Contains(fields[1], "=") {
		return Pin{}, fmt.Errorf("option %s is not used here", fields[1])
	}
	if len(fields) < 3 {
		return Pin{}, fmt.Errorf("not CLUSTERSET/CLUSTER KEYTYPE KEY")
	}
	set, cluster, ok := strings.Cut(fields[0], "/")
	if !ok || set == "" || cluster == "" {
		return Pin{}, fmt.Errorf("%q is not CLUSTERSET/CLUSTER", fields[0])
	}
	if _, err := path.Match(cluster, ""); err != nil {
		return Pin{}, fmt.Errorf("%q is not CLUSTERSET/CLUSTER: %w", fields[0], err)
	}
	blob, err := base64.StdEncoding.DecodeString(fields[2])
	if err != nil {
		return Pin{}, fmt.Errorf("the key is not base64")
	}
	key, err := ssh.ParsePublicKey(blob)
	if err != nil {
		return Pin{}, fmt.Errorf("the key is not one of OpenSSH")
	}
	if key.Type() != fields[1] {
		return Pin{}, fmt.Errorf("the key is of type %s, not %s", key.Type(), fields[1])
	}
	return Pin{Clusterset: set, Cluster: cluster, Key: Line(key)}, nil
}

// forCluster reports whether a pin is for a cluster.
func (p Pin) forCluster(name string) bool {
	ok, err := path.Match(p.Cluster, name)
	return ok && err == nil
}
