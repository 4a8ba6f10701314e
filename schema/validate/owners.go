package validate

import (
	"fmt"
	"strings"

	"hawser.dev/hawser/schema/fieldpath"
)

// owners checks the owners of the clusterset, of clusters and of namespaces.
func (c *checker) owners() {
	trust := &c.set.Spec.Trust
	c.principals("trust.owners", trust.Owners)
	first := ""
	if len(trust.Owners) > 0 {
		first = "trust.owners"
	}
	for i, n := range trust.Namespaces {
		path := fieldpath.Index("trust.namespaces", i)
		c.patterns(path+".names", n.Names)
		c.principals(path+".owners", n.Owners)
		if first == "" {
			first = path
		}
	}
	for i, path := range c.clusterPaths {
		if owners := c.set.Spec.Clusters[i].Owners; len(owners) > 0 {
			c.principals(path+".owners", owners)
			if first == "" {
				first = path + ".owners"
			}
		}
	}
	switch {
	case first == "":
	case trust.Commits == "":
		c.Fail("required", first, "needs trust.commits: without it commits need no signature",
			"set trust: {commits: allowed_signers}, with that file in the same directory")
	case len(trust.Owners) == 0:
		c.Fail("required", first, "needs trust.owners: without it all other changes are refused",
			"set trust: {owners: [...]} to the principals that may change everything")
	}
}

// principals checks patterns of principals.
func (c *checker) principals(path string, patterns []string) {
	seen := uniqueness{}
	for i, p := range patterns {
		at := fieldpath.Index(path, i)
		switch {
		case p == "":
			c.Fail("required", at, "is missing", "")
		case strings.ContainsAny(p, ",?! \t\r\n\"#"):
			c.Fail("bad-pattern", at, fmt.Sprintf("%q is not a principal of an allowed_signers file", p),
				"write one, such as ann@example.org, or a pattern in which * matches any characters; use one list item for each")
		default:
			c.unique(seen, p, at, p+" is listed twice")
		}
	}
}
