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

// Pin is a signer whom an agent trusts before it has read anything.
type Pin struct {
	Clusterset string
	Cluster    string // * = all of the clusterset
	Key        string // as authorized_keys has it, without comment
	// Threshold, of an approver, is how many of all approvers it takes; 0 = a signer.
	Threshold int
}

// String gives the pin as a line of an allowed_signers file.
func (p Pin) String() string {
	options := ""
	if p.Threshold > 0 {
		options = approverOption + " "
	}
	return p.Clusterset + "/" + p.Cluster + " " + options + p.Key
}

// approverOption marks approvers: ssh-keygen takes their keys for approvals alone.
const approverOption = `namespaces="` + string(Approval) + `"`

// thresholdLine is a comment for OpenSSH, which knows no threshold.
func thresholdLine(n int) string { return thresholdPrefix + strconv.Itoa(n) }

const thresholdPrefix = "# threshold: "

// PinFile gives the pinned signers of a cluster (* = of all), and who must approve, as
// ParsePins reads them. Without signers it is empty. The keys are as authorized_keys
// has them.
func PinFile(clusterset, cluster string, signers []string, approvers Approvers) string {
	if len(signers) == 0 {
		return ""
	}
	var out strings.Builder
	for _, key := range signers {
		out.WriteString(Pin{Clusterset: clusterset, Cluster: cluster, Key: key}.String() + "\n")
	}
	if len(approvers.Keys) > 0 {
		out.WriteString(thresholdLine(approvers.Threshold) + "\n")
	}
	for _, key := range approvers.Keys {
		out.WriteString(Pin{Clusterset: clusterset, Cluster: cluster, Key: key, Threshold: approvers.Threshold}.String() + "\n")
	}
	return out.String()
}

// ParsePins reads a file of pins, in the format of OpenSSH's allowed_signers: one
// CLUSTERSET/CLUSTER KEYTYPE KEY a line, with comments after #. A line with the option
// namespaces="approval.hawser.dev" before KEYTYPE is that of an approver, and a comment
// "# threshold: N" says how many of these it takes. Errors name the line. A file
// without signers is one.
func ParsePins(raw []byte) ([]Pin, error) {
	var out []Pin
	threshold, signers, approver := 0, false, 0
	for i, line := range bytes.Split(raw, []byte("\n")) {
		text := strings.TrimSpace(string(line))
		if number, ok := strings.CutPrefix(text, thresholdPrefix); ok {
			n, err := strconv.Atoi(number)
			if err != nil || n < 1 || n > MaxApprovers {
				return nil, fmt.Errorf("line %d: the threshold %q is not a number from 1 to %d", i+1, number, MaxApprovers)
			}
			if threshold > 0 && threshold != n {
				return nil, fmt.Errorf("line %d: a threshold of %d stands above", i+1, threshold)
			}
			threshold = n
			continue
		}
		if text == "" || strings.HasPrefix(text, "#") {
			continue
		}
		pin, err := parsePin(text)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		if signers = signers || pin.Threshold == 0; pin.Threshold > 0 {
			approver = i + 1
		}
		if !slices.Contains(out, pin) {
			out = append(out, pin)
		}
	}
	if approver > 0 && threshold == 0 {
		return nil, fmt.Errorf("line %d: an approver without a line %sN, which says how many it takes", approver, thresholdPrefix)
	}
	if approver == 0 && threshold > 0 {
		return nil, fmt.Errorf("a threshold of %d, and no approver (lines with %s)", threshold, approverOption)
	}
	for i := range out {
		if out[i].Threshold > 0 {
			out[i].Threshold = threshold
		}
	}
	if !signers {
		return nil, fmt.Errorf("no signer in it: it needs lines CLUSTERSET/CLUSTER ssh-ed25519 KEY (hawser keys signers prints them)")
	}
	return out, nil
}

func parsePin(text string) (Pin, error) {
	fields := strings.Fields(text)
	threshold := 0
	if len(fields) > 1 && fields[1] == approverOption {
		threshold, fields = 1, slices.Delete(fields, 1, 2)
	}
	if len(fields) > 1 && strings.Contains(fields[1], "=") {
		return Pin{}, fmt.Errorf("option %s is not used here (approvers have %s)", fields[1], approverOption)
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
	return Pin{Clusterset: set, Cluster: cluster, Key: Line(key), Threshold: threshold}, nil
}

// forCluster reports whether a pin is for a cluster.
func (p Pin) forCluster(name string) bool {
	ok, err := path.Match(p.Cluster, name)
	return ok && err == nil
}
