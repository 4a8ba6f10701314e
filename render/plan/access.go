package plan

import (
	"cmp"
	"fmt"
	"strings"

	"hawser.dev/hawser/access"
)

// Limits of the listed access in the text. The JSON form contains all.
const (
	maxListed       = 40 // lines of each list
	maxLineItems    = 4  // resources or endpoints of a line
	maxLineClusters = 6  // clusters of a line
)

// locateAccess sets the position of paths that are in the new topology.
func locateAccess(c *access.Changes, source func(path string) string) {
	for _, list := range [][]access.Change{c.Added, c.Removed} {
		for i := range list {
			if !list[i].Gone {
				list[i].Source = source(list[i].Path)
			}
		}
	}
}

func (o *printer) access(c *access.Changes) {
	o.accessList("Access added:", bold+yellow, c.Added)
	o.accessList("Access removed:", bold, c.Removed)
}

func (o *printer) accessList(title, color string, list []access.Change) {
	if len(list) == 0 {
		return
	}
	o.text("\n%s\n", o.paint(color, title))
	for i := range list {
		if i == maxListed {
			o.text("  and %d more, which -o json lists\n", len(list)-i)
			return
		}
		c := &list[i]
		o.text("  %s  # %s\n", accessText(c), cmp.Or(c.Source, c.Path))
	}
}

// accessText returns a change on one line: clusters, resources, and the resources' clusters, as in
//
//	ams, sin -> shop/db:5432 in fra
func accessText(c *access.Change) string {
	var to []string
	for i := range c.To[:min(len(c.To), maxLineItems)] {
		to = append(to, resourceText(&c.To[i]))
	}
	from := allClusters
	switch {
	case !c.All:
		from = names(c.From)
	case len(c.Except) > 0:
		from = "all clusters but " + names(c.Except)
	}
	text := from + " -> " + strings.Join(to, "; ")
	if more := len(c.To) - len(to); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// resourceText returns namespace/name and ports, or a prefix, and its clusters.
func resourceText(r *access.Resource) string {
	suffix := " in " + names(r.In)
	switch {
	case r.Prefix != "":
		return r.Prefix + suffix
	case r.Namespaces != "":
		text := "exports of namespaces " + r.Namespaces
		if len(r.ExceptNamespaces) > 0 {
			text += " other than " + strings.Join(r.ExceptNamespaces, ", ")
		}
		return text + suffix
	}
	ports := make([]string, len(r.Ports))
	for i, p := range r.Ports {
		ports[i] = strings.TrimSuffix(p, "/TCP")
	}
	return r.Export + ":" + strings.Join(ports, ",") + suffix
}

// names returns clusters as text. Of many clusters it contains only the first ones.
func names(list []string) string {
	if len(list) <= maxLineClusters {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxLineClusters-1], ", "), len(list)-maxLineClusters+1)
}
