package validate

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
	"hawser.dev/hawser/schema/paths"
	"hawser.dev/hawser/schema/syntax"
)

// label checks a name that becomes a DNS label. An empty one is missing, which
// is found elsewhere.
func (c *checker) label(path, text string) {
	if text == "" || fabric.IsLabel(text) {
		return
	}
	d := diag.Diagnostic{
		Code: "bad-name", Path: path, Summary: fmt.Sprintf("%q is not a DNS label", text),
		Hint: "use lower-case letters, digits and hyphens, with no hyphen at either end",
	}
	mended := syntax.MendLabel(text)
	switch {
	case len(text) > fabric.MaxLabel:
		d.Summary = fmt.Sprintf("the name is %d characters long, %d are allowed", len(text), fabric.MaxLabel)
		d.Hint = ""
	case strings.ToLower(text) == mended:
		d.Summary, d.Hint = fmt.Sprintf("%q has upper-case letters, which names may not have", text), "write "+mended
	case fabric.IsLabel(mended):
		d.Hint += ", such as " + mended
	}
	c.Fail(d)
}

// domain checks a DNS name of one or more labels.
func (c *checker) domain(path, text string) {
	if text == "" || fabric.IsDomain(text) {
		return
	}
	d := diag.Diagnostic{Code: "bad-name", Path: path, Summary: fmt.Sprintf("%q is not a DNS name", text)}
	switch mended := strings.ToLower(strings.Trim(text, ".")); {
	case len(text) > fabric.MaxName:
		d.Summary = fmt.Sprintf("the name is %d characters long, %d are allowed", len(text), fabric.MaxName)
	case fabric.IsDomain(mended):
		d.Hint = "write " + mended
	default:
		d.Hint = "use labels of lower-case letters, digits and hyphens, with dots between them"
	}
	c.Fail(d)
}

// uniqueness finds names that occur twice in one scope.
type uniqueness map[string]string

// add notes the name of the item at path; it gives the path of an earlier item
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
		c.Fail(diag.Diagnostic{Code: "duplicate", Path: path, Summary: summary, Related: diag.Paths(earlier)})
	}
}

// known checks a list of cluster names: each exists, none occurs twice.
func (c *checker) known(path string, names []string) {
	seen := uniqueness{}
	for i, name := range names {
		c.knownCluster(paths.Nth(path, i), name)
		c.unique(seen, name, paths.Nth(path, i), "cluster "+name+" is listed twice")
	}
}

// knownCluster checks that a cluster exists.
func (c *checker) knownCluster(path, name string) {
	if _, ok := c.clusters[name]; ok {
		return
	}
	d := diag.Diagnostic{Code: "unknown-cluster", Path: path, Summary: fmt.Sprintf("there is no cluster %q", name)}
	if c.Tally.Full(diag.Error) { // nobody reads its hint
		c.Fail(d)
		return
	}
	if near := syntax.Nearest(name, c.set.ClusterNames()); near != "" {
		d.Hint = "did you mean " + near + "?"
	} else if names := c.set.ClusterNames(); len(names) > 0 && len(names) <= maxListed {
		d.Hint = "the clusters are " + strings.Join(names, ", ")
	}
	c.Fail(d)
}

// maxListed is how many names a hint lists; more help nobody.
const maxListed = 8
