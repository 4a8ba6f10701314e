package plan

import (
	"cmp"
	"fmt"
	"strings"
)

// How much of what clusters reach the text lists; the JSON form has all.
const (
	maxAccesses = 40 // lines of each list
	maxTargets  = 4  // of a line
	maxCrowd    = 6  // clusters of a line
)

// locate fills in where the paths stand; what left the topology stands nowhere.
func (r *Reach) locate(source func(path string) string) {
	for _, list := range [][]Access{r.Gained, r.Lost} {
		for i := range list {
			if !list[i].Gone {
				list[i].Source = source(list[i].Path)
			}
		}
	}
}

func (o *printer) reach(r *Reach) {
	o.accesses("Newly reachable:", bold+yellow, r.Gained)
	o.accesses("No longer reachable:", bold, r.Lost)
}

func (o *printer) accesses(title, color string, list []Access) {
	if len(list) == 0 {
		return
	}
	o.text("\n%s\n", o.paint(color, title))
	for i, a := range list {
		if i == maxAccesses {
			o.text("  and %d more, which -o json lists\n", len(list)-i)
			return
		}
		o.text("  %s  # %s\n", a.Text(), cmp.Or(a.Source, a.Path))
	}
}

// Text says who reaches what, on one line, as in
//
//	ams, sin -> shop/db:5432 in fra
func (a *Access) Text() string {
	var to []string
	for i := range a.To[:min(len(a.To), maxTargets)] {
		to = append(to, a.To[i].Text())
	}
	who := allClusters
	switch {
	case !a.All:
		who = names(a.From)
	case len(a.AllBut) > 0:
		who = "all clusters but " + names(a.AllBut)
	}
	text := who + " -> " + strings.Join(to, "; ")
	if more := len(a.To) - len(to); more > 0 {
		text += fmt.Sprintf("; and %d more", more)
	}
	return text
}

// Text names the target: namespace/name and ports, or a prefix, and its clusters.
func (t *Target) Text() string {
	in := " in " + names(t.In)
	switch {
	case t.Prefix != "":
		return t.Prefix + in
	case t.Namespaces != "":
		text := "what is exported from namespaces " + t.Namespaces
		if len(t.Besides) > 0 {
			text += " other than " + strings.Join(t.Besides, ", ")
		}
		return text + in
	}
	ports := make([]string, len(t.Ports))
	for i, p := range t.Ports {
		ports[i] = strings.TrimSuffix(p, "/TCP")
	}
	return t.Export + ":" + strings.Join(ports, ",") + in
}

// names lists clusters, the first of many.
func names(list []string) string {
	if len(list) <= maxCrowd {
		return strings.Join(list, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(list[:maxCrowd-1], ", "), len(list)-maxCrowd+1)
}
