package validate

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/fieldpath"
	"hawser.dev/hawser/schema/syntax"
)

// label checks a name that becomes a DNS label. Another check reports an empty one.
func (c *checker) label(path, text string) {
	if text == "" || fabric.IsLabel(text) {
		return
	}
	summary := fmt.Sprintf("%q is not a DNS label", text)
	hint := "use lower-case letters, digits and hyphens, with no hyphen at either end"
	suggested := syntax.SuggestLabel(text)
	switch {
	case len(text) > fabric.MaxLabel:
		summary, hint = fmt.Sprintf("the name is %d characters long, %d are allowed", len(text), fabric.MaxLabel), ""
	case strings.ToLower(text) == suggested:
		summary, hint = fmt.Sprintf("%q has upper-case letters, which names may not have", text), "write "+suggested
	case fabric.IsLabel(suggested):
		hint += ", such as " + suggested
	}
	c.Fail("bad-name", path, summary, hint)
}

// domain checks a DNS name of one or more labels.
func (c *checker) domain(path, text string) {
	if text == "" || fabric.IsDomain(text) {
		return
	}
	summary, hint := fmt.Sprintf("%q is not a DNS name", text), ""
	switch suggested := strings.ToLower(strings.Trim(text, ".")); {
	case len(text) > fabric.MaxName:
		summary = fmt.Sprintf("the name is %d characters long, %d are allowed", len(text), fabric.MaxName)
	case fabric.IsDomain(suggested):
		hint = "write " + suggested
	default:
		hint = "use labels of lower-case letters, digits and hyphens, with dots between them"
	}
	c.Fail("bad-name", path, summary, hint)
}

// uniqueness finds names that occur twice in one scope.
type uniqueness map[string]string

// add records the name of the item at path, and returns the path of an earlier item
// with the same name.
func (u uniqueness) add(name, path string) (earlier string, dup bool) {
	if name == "" {
		return "", false
	}
	if earlier, dup = u[name]; !dup {
		u[name] = path
	}
	return earlier, dup
}

// unique reports a name that an earlier item has. The summary says what it is.
func (c *checker) unique(u uniqueness, name, path, summary string) {
	if earlier, dup := u.add(name, path); dup {
		c.Fail("duplicate", path, summary, "", earlier)
	}
}

// clusterNames checks a list of cluster names: each exists, none occurs twice.
func (c *checker) clusterNames(path string, names []string) {
	seen := uniqueness{}
	for i, name := range names {
		c.knownCluster(fieldpath.Index(path, i), name)
		c.unique(seen, name, fieldpath.Index(path, i), "cluster "+name+" is listed twice")
	}
}

// knownCluster checks that a cluster exists.
func (c *checker) knownCluster(path, name string) {
	if _, ok := c.clusters[name]; ok {
		return
	}
	hint := ""
	if !c.Tally.Full(diag.Error) { // otherwise the finding is only counted
		names := c.set.ClusterNames()
		if near := syntax.Nearest(name, names); near != "" {
			hint = "did you mean " + near + "?"
		} else if len(names) > 0 && len(names) <= maxListedNames {
			hint = "the clusters are " + strings.Join(names, ", ")
		}
	}
	c.Fail("unknown-cluster", path, fmt.Sprintf("there is no cluster %q", name), hint)
}

// maxListedNames is the maximum number of names in a hint; longer lists do not help.
const maxListedNames = 8
