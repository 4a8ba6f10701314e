package discover

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// Todo marks what the user must write into a topology. If the value is required, Todo
// follows a value that hawser validate refuses.
const Todo = "TODO(hawser)"

// ClusterYAML returns the cluster's item of spec.clusters, without indentation. A comment
// behind each value names its source.
func (c *Cluster) ClusterYAML(recipient string) string {
	var out strings.Builder
	line := func(text, comment string) { _, _ = fmt.Fprintf(&out, "%s # %s\n", text, comment) }
	_, _ = fmt.Fprintf(&out, "- name: %s\n", scalar(c.Name))
	for _, p := range []struct {
		field string
		found Prefixes
	}{{"podCIDRs", c.PodCIDRs}, {"serviceCIDRs", c.ServiceCIDRs}} {
		if len(p.found.CIDRs) == 0 {
			line("  "+p.field+": [<prefix>]", Todo+": no object of the cluster shows them")
			continue
		}
		line("  "+p.field+": ["+humanize.Join(p.found.CIDRs, ", ")+"]", confidenceComment(p.found.Confidence, p.found.From))
	}
	switch c.DNS.Value {
	case "":
		line("  # dns: auto", Todo+": the cluster's DNS could not be read (docs/kubernetes.md)")
	case fabric.DNSCoreDNS, fabric.DNSImport: // agents detect which one
		line("  # dns: auto", confidenceComment(c.DNS.Confidence, c.DNS.From))
	default:
		line("  dns: "+c.DNS.Value, confidenceComment(c.DNS.Confidence, c.DNS.From))
	}
	_, _ = fmt.Fprintf(&out, "  recipient: %s\n", recipient)
	c.gatewayEntries(&out)
	return out.String()
}

func (c *Cluster) gatewayEntries(out *strings.Builder) {
	_, _ = out.WriteString("  gateways:\n")
	n := 0
	for _, g := range c.Gateways {
		if !g.Selected {
			continue
		}
		_, _ = fmt.Fprintf(out, "  - name: %s\n    node: %s\n", scalar(c.gatewayName(n)), scalar(g.Node))
		n++
		if len(g.Endpoints) == 0 {
			_, _ = fmt.Fprintf(out, "    # endpoints: [] # %s: where other clusters reach it; without any it only dials out\n",
				Todo)
			continue
		}
		var texts []string
		for _, a := range g.Endpoints {
			texts = append(texts, endpoint(a))
		}
		if g.External {
			texts = append(texts, fabric.SourceExternalIP) // the cloud may assign another address
		}
		_, _ = fmt.Fprintf(out, "    endpoints: [%s] # %s\n", strings.Join(texts, ", "), confidenceComment(g.Confidence, g.From))
	}
	if n == 0 {
		_, _ = fmt.Fprintf(out, "  - name: %s\n    node: <name> # %s: no node was found that is ready, runs Linux and "+
			"is schedulable\n", scalar(c.gatewayName(0)), Todo)
	}
}

// gatewayName returns the name of the n-th gateway.
func (c *Cluster) gatewayName(n int) string {
	letter := string(rune('a' + n))
	if len(c.Name)+2 > fabric.MaxLabel {
		return letter
	}
	return c.Name + "-" + letter
}

// endpoint returns an address as an item of a YAML list in brackets.
func endpoint(a netip.Addr) string {
	if a.Is4() {
		return a.String()
	}
	return `"` + a.String() + `"`
}

// plainScalar matches words that every YAML parser reads as text, except booleans and null.
var plainScalar = regexp.MustCompile(`^[a-z][a-z0-9.-]*$`)

// scalar returns a text as a YAML scalar. It quotes everything but plain words, and words that some
// parsers read as a boolean or null.
func scalar(text string) string {
	if !plainScalar.MatchString(text) || slices.Contains([]string{"y", "n", "yes", "no", "on", "off", "true", "false", "null"}, text) {
		return strconv.Quote(text)
	}
	return text
}

func confidenceComment(confidence Confidence, from string) string {
	return string(confidence) + ": " + from
}

// Topology returns a new topology with the clusters. recipients are keyed by cluster.
func Topology(name string, clusters []Cluster, recipients map[string]string) string {
	var out strings.Builder
	_, _ = fmt.Fprintf(&out, `# The whole clusterset: every cluster, every gateway, every exported service.
# Check it with "hawser validate", see what a change does with "hawser diff".
# Comments behind values found in the clusters say how certain they are, and their source.
# "hawser join --context NAME" adds another cluster.
apiVersion: hawser.dev/v1alpha1
kind: ClusterSet
metadata:
  name: %s
spec:
  clusters:
`, scalar(name))
	for i := range clusters {
		_, _ = out.WriteString(indented(clusters[i].ClusterYAML(recipients[clusters[i].Name]), "  "))
	}
	if len(clusters) > 0 {
		_, _ = out.WriteString(ExportHint(scalar(clusters[len(clusters)-1].Name)))
	}
	return out.String()
}

func indented(text, prefix string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		_, _ = out.WriteString(prefix + line)
	}
	return out.String()
}

// Insert adds a ClusterYAML entry after the last cluster of a topology's text. The rest
// of the text does not change. The clusters must be a YAML block list.
func Insert(raw []byte, entry string) ([]byte, error) {
	var document yaml.Node
	if err := yaml.Unmarshal(raw, &document); err != nil {
		return nil, fmt.Errorf("read topology: %w", err)
	}
	node := &document
	if len(node.Content) == 1 {
		node = node.Content[0]
	}
	for _, key := range []string{"spec", "clusters"} {
		if node = child(node, key); node == nil {
			return nil, fmt.Errorf("there is no %s in it", key)
		}
	}
	if node.Kind != yaml.SequenceNode || node.Style&yaml.FlowStyle != 0 || len(node.Content) == 0 {
		return nil, fmt.Errorf("line %d: clusters is not a list with one or more lines that begin with a hyphen", node.Line)
	}
	return appendItem(raw, node, entry)
}

// appendItem adds an item after the last one of a block list that is not empty.
func appendItem(raw []byte, list *yaml.Node, entry string) ([]byte, error) {
	if list.Style&yaml.FlowStyle != 0 {
		return nil, fmt.Errorf("line %d: the list is in brackets: write its items on lines that begin with a hyphen", list.Line)
	}
	last := list.Content[len(list.Content)-1]
	lines := strings.SplitAfter(string(raw), "\n")
	first := last.Line - 1
	if strings.TrimSpace(lines[first][:last.Column-1]) == "" { // the hyphen has a line of its own
		for first--; first > 0 && !strings.HasPrefix(strings.TrimSpace(lines[first]), "-"); first-- {
		}
	}
	dash := strings.IndexByte(lines[first], '-')
	if dash < 0 || strings.TrimSpace(lines[first][:dash]) != "" {
		return nil, fmt.Errorf("line %d: the last item of the list is not on a line that begins with a hyphen", last.Line)
	}
	end, gap := last.Line, first > 0 && strings.TrimSpace(lines[first-1]) == ""
	for i := end; i < len(lines); i++ {
		text := strings.TrimLeft(lines[i], " ")
		if strings.TrimSpace(text) == "" {
			continue // part of the item only if a deeper line follows
		}
		if len(lines[i])-len(text) <= dash {
			break
		}
		end = i + 1
	}
	added := indented(entry, lines[first][:dash])
	if gap {
		added = "\n" + added
	}
	if !strings.HasSuffix(lines[end-1], "\n") {
		added = "\n" + strings.TrimSuffix(added, "\n")
	}
	if strings.HasSuffix(lines[0], "\r\n") {
		added = strings.ReplaceAll(added, "\n", "\r\n")
	}
	return []byte(strings.Join(lines[:end], "") + added + strings.Join(lines[end:], "")), nil
}

func child(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(mapping.Content); i += 2 {
		if mapping.Content[i].Value == key {
			return mapping.Content[i+1]
		}
	}
	return nil
}

// ExportHint returns the end of a new topology: an export of the cluster as a comment.
// cluster is a YAML scalar.
func ExportHint(cluster string) string {
	return `  # Services that clusters offer to each other. This one answers in all clusters
  # as web.default.svc.clusterset.local.
  #
  # exports:
  # - name: web
  #   namespace: default
  #   clusters: [` + cluster + `]
  #   ports: [{name: http, port: 80}]
`
}
