package trust

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/crypto/ssh"
)

// Pin is a signer whom an agent trusts before it has read anything.
type Pin struct {
	Clusterset string
	Cluster    string // * = all of the clusterset
	Key        string // as authorized_keys has it, without comment
}

// String returns the pin as a line of an allowed_signers file.
func (p Pin) String() string { return p.Clusterset + "/" + p.Cluster + " " + p.Key }

// PinFile returns the pinned signers of a cluster (* = of all) in the format of ParsePins.
// Without signers it is empty. The keys are as authorized_keys has them.
func PinFile(clusterset, cluster string, signers []string) string {
	var out strings.Builder
	for _, key := range signers {
		out.WriteString(Pin{Clusterset: clusterset, Cluster: cluster, Key: key}.String() + "\n")
	}
	return out.String()
}

// ParsePins reads a file of pins, in the format of OpenSSH's allowed_signers: one
// CLUSTERSET/CLUSTER KEYTYPE KEY a line, with comments after #. Errors name the line. A
// file without signers is one.
func ParsePins(raw []byte) ([]Pin, error) {
	var out []Pin
	for i, line := range bytes.Split(raw, []byte("\n")) {
		text := strings.TrimSpace(string(line))
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
