package schema

import (
	"sigs.k8s.io/yaml"

	"hawser.dev/hawser/internal/diag"
)

// Source is the text of a topology file; it knows where each value stands.
type Source struct {
	File string // name for messages
	Raw  []byte // content
}

// Pos gives the place of a path, such as clusters[g1].podCIDRs[0], or of the
// nearest parent that exists.
func (s *Source) Pos(path string) diag.Pos {
	return diag.Pos{File: s.File}
}

// Load reads, checks and completes a topology file. The list holds everything
// that was found, each with its place; the ClusterSet is to be used only when
// the list has no errors.
func Load(file string, raw []byte) (*ClusterSet, *Source, diag.List) {
	src := &Source{File: file, Raw: raw}
	set := &ClusterSet{}
	if err := yaml.UnmarshalStrict(raw, set); err != nil {
		return set, src, diag.List{{Severity: diag.Error, Code: "syntax", Summary: err.Error()}}
	}
	Default(set)
	return set, src, Validate(set)
}
