package schema

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema/fabric"
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
	mended := mendLabel(text)
	switch {
	case len(text) > fabric.MaxLabel:
		d.Summary = fmt.Sprintf("the name is %d characters long, %d are allowed", len(text), fabric.MaxLabel)
		d.Hint = ""
	case strings.ToLower(text) == mended:
		d.Summary, d.Hint = fmt.Sprintf("%q has upper-case letters, which names may not have", text), "write "+mended
	case fabric.IsLabel(mended):
		d.Hint += ", such as " + mended
	}
	c.fail(d)
}

// mendLabel makes the label that a name most likely should be.
func mendLabel(text string) string {
	return strings.Trim(strings.Map(func(r rune) rune {
		switch {
		case fabric.IsLabelRune(r):
			return r
		case r == '_' || r == '.' || r == ' ' || r == '/':
			return '-'
		}
		return -1
	}, strings.ToLower(text)), "-")
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
	c.fail(d)
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
		c.fail(diag.Diagnostic{Code: "duplicate", Path: path, Summary: summary, Related: related(earlier)})
	}
}

// known checks a list of cluster names: each exists, none occurs twice.
func (c *checker) known(path string, names []string) {
	seen := uniqueness{}
	for i, name := range names {
		c.knownCluster(nth(path, i), name)
		c.unique(seen, name, nth(path, i), "cluster "+name+" is listed twice")
	}
}

// knownCluster checks that a cluster exists.
func (c *checker) knownCluster(path, name string) {
	if _, ok := c.clusters[name]; ok {
		return
	}
	d := diag.Diagnostic{Code: "unknown-cluster", Path: path, Summary: fmt.Sprintf("there is no cluster %q", name)}
	if c.tally.full(diag.Error) { // nobody reads its hint
		c.fail(d)
		return
	}
	if near := Nearest(name, c.clusterNames()); near != "" {
		d.Hint = "did you mean " + near + "?"
	} else if names := c.clusterNames(); len(names) > 0 && len(names) <= maxListed {
		d.Hint = "the clusters are " + strings.Join(names, ", ")
	}
	c.fail(d)
}

// maxListed is how many names a hint lists; more help nobody.
const maxListed = 8

func (c *checker) clusterNames() []string {
	names := make([]string, len(c.set.Spec.Clusters))
	for i := range names {
		names[i] = c.set.Spec.Clusters[i].Name
	}
	return names
}
