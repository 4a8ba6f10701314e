package lab

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"filippo.io/age"
	"gopkg.in/yaml.v3"
)

// setRecipients sets the recipients of a topology by cluster name and changes nothing else.
// Comments, order and layout do not change. Lines keep their numbers, except below an added
// recipient.
func setRecipients(raw []byte, recipients map[string]string) ([]byte, error) {
	clusters, err := clusterNodes(raw)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(string(raw), "\n")
	slices.SortFunc(clusters, func(a, b *yaml.Node) int { // from the end, so that earlier positions stay valid
		return cmp.Or(cmp.Compare(b.Line, a.Line), cmp.Compare(b.Column, a.Column))
	})
	for _, node := range clusters {
		name := field(node, "name")
		if name == nil || recipients[name.Value] == "" {
			continue
		}
		want := recipients[name.Value]
		if have := field(node, "recipient"); have != nil {
			// Columns count characters.
			line := lines[have.Line-1]
			runes := []rune(line)
			start := min(have.Column-1, len(runes))
			lines[have.Line-1] = string(runes[:start]) + want + string(runes[min(start+width(have), len(runes)):])
			continue
		}
		lines = insertRecipient(lines, node, name, want)
	}
	out := []byte(strings.Join(lines, "\n"))
	return out, checkRecipients(out, recipients)
}

// checkRecipients checks the edit by parsing the result. An edit by position does not support all
// of YAML, such as anchors and block scalars.
func checkRecipients(raw []byte, recipients map[string]string) error {
	t, err := parseTopology(raw)
	if err != nil {
		return fmt.Errorf("set recipients: %w", err)
	}
	for _, c := range t.clusters {
		if want := recipients[c.name]; want != "" && c.recipient != want {
			return fmt.Errorf("set recipient of cluster %s: write it as a plain line `recipient: age1...`", c.name)
		}
	}
	return nil
}

func clusterNodes(raw []byte) ([]*yaml.Node, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	if len(document.Content) == 0 {
		return nil, errors.New("read topology: the file is empty")
	}
	spec := field(document.Content[0], "spec")
	if spec == nil {
		return nil, errors.New("read topology: no spec")
	}
	list := field(spec, "clusters")
	if list == nil || list.Kind != yaml.SequenceNode {
		return nil, nil
	}
	return slices.Clone(list.Content), nil
}

func field(node *yaml.Node, name string) *yaml.Node {
	if node.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == name {
			return node.Content[i+1]
		}
	}
	return nil
}

func width(scalar *yaml.Node) int {
	n := len([]rune(scalar.Value))
	if scalar.Style&(yaml.DoubleQuotedStyle|yaml.SingleQuotedStyle) != 0 {
		n += 2
	}
	return n
}

// insertRecipient inserts the recipient after the name: on the same line in {flow: style},
// otherwise on a new line with the same indentation.
func insertRecipient(lines []string, node, name *yaml.Node, recipient string) []string {
	index := name.Line - 1
	if node.Style&yaml.FlowStyle != 0 {
		runes := []rune(lines[index])
		end := min(name.Column-1+width(name), len(runes))
		lines[index] = string(runes[:end]) + ", recipient: " + recipient + string(runes[end:])
		return lines
	}
	return slices.Insert(lines, index+1, strings.Repeat(" ", node.Column-1)+"recipient: "+recipient)
}

// recipientOf returns the age recipient of a cluster in this lab. It creates the identity if it
// does not exist.
func recipientOf(l Layout, cluster string) (string, error) {
	raw, err := os.ReadFile(l.identity(cluster))
	if errors.Is(err, os.ErrNotExist) {
		identity, err := age.GenerateX25519Identity()
		if err != nil {
			return "", fmt.Errorf("make identity of cluster %s: %w", cluster, err)
		}
		text := "# public key: " + identity.Recipient().String() + "\n" + identity.String() + "\n"
		if _, err := writeFile(l.identity(cluster), []byte(text), 0o600); err != nil {
			return "", err
		}
		return identity.Recipient().String(), nil
	}
	if err != nil {
		return "", fmt.Errorf("read identity of cluster %s: %w", cluster, err)
	}
	recipient, err := recipientIn(raw)
	if err != nil {
		return "", fmt.Errorf("read identity of cluster %s: %s: %w", cluster, l.identity(cluster), err)
	}
	return recipient, nil
}

// recipientIn returns the recipient of the first identity in an age identity file.
func recipientIn(raw []byte) (string, error) {
	identities, err := age.ParseIdentities(bytes.NewReader(raw))
	if err != nil || len(identities) == 0 {
		return "", errors.New("not an age identity file") // do not wrap the cause, which may quote it
	}
	identity, ok := identities[0].(*age.X25519Identity)
	if !ok {
		return "", errors.New("not an X25519 identity")
	}
	return identity.Recipient().String(), nil
}
