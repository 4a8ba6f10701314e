package plan

import (
	"fmt"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/diff"
)

// assignCauses finds the edit of the topology that caused each entry and each of its fields.
// Indirect effects refer to the line of the edit. Examples are a cluster that now uses globalnet,
// or a gateway's port from a default. An edit without an entry becomes an entry, so that the plan
// lists every edit. quiet means that the clusters' files are equal.
func (p *Plan) assignCauses(list []edit, quiet bool) {
	cause := newEditIndex(list).find
	for i := range p.Entries {
		e := &p.Entries[i]
		if e.isPatch() {
			continue
		}
		if e.Op != diff.Update && e.Op != diff.Replace {
			if c := cause(causePaths(e, "")); c != nil {
				e.Path, e.pathRemains = c.citedPath(e.Path), c.op != diff.Delete
			}
			continue
		}
		for j := range e.Fields {
			f := &e.Fields[j]
			c := cause(causePaths(e, f.Name))
			switch {
			case c == nil:
			case j == 0:
				e.Path = c.citedPath(ownPath(e, f.Name))
			default:
				if path := c.citedPath(ownPath(e, f.Name)); path != e.Path {
					f.Path = path
				}
			}
		}
	}
	for i := range list {
		if c := &list[i]; !c.cited {
			setting := item{kind: kindSetting, name: c.path, path: c.path}
			if quiet {
				setting.remark = "nothing that clusters get changes because of it"
			}
			previous := setting
			setting.fields, previous.fields = []diff.Field{field("value", c.want)}, []diff.Field{field("value", c.have)}
			p.add(diff.Change[item]{Op: diff.Update, Key: c.path, Want: setting, Have: previous})
		}
	}
}

// isPatch reports whether an entry is about a patch, whose cause is not the topology.
func (e *Entry) isPatch() bool {
	return e.Kind == kindFile && strings.Contains(e.Key, "/patches/")
}

// editIndex finds edits by path.
type editIndex struct {
	exact     map[string][]*edit // at a path
	atOrBelow map[string][]*edit // at a path or below it
	cache     map[string]*edit   // results of earlier lookups by path
}

func newEditIndex(list []edit) *editIndex {
	c := &editIndex{exact: map[string][]*edit{}, atOrBelow: map[string][]*edit{}, cache: map[string]*edit{}}
	for i := range list {
		e := &list[i]
		for _, path := range []string{e.path, wildcardPath(e.path)} {
			parents := pathPrefixes(path)
			c.exact[path] = append(c.exact[path], e)
			for _, parent := range parents {
				c.atOrBelow[parent] = append(c.atOrBelow[parent], e)
			}
			if wildcardPath(e.path) == e.path {
				break
			}
		}
	}
	return c
}

// find returns the edit at the first of the paths that has an edit at, below or above it. It marks
// all edits of that path as cited.
func (c *editIndex) find(paths []string) *edit {
	for _, path := range paths {
		found, cached := c.cache[path]
		if !cached {
			parents := pathPrefixes(path)
			hits := c.atOrBelow[path]
			for _, parent := range parents[:max(len(parents)-1, 0)] {
				hits = append(slices.Clip(hits), c.exact[parent]...)
			}
			for _, e := range hits {
				e.cited = true
			}
			if len(hits) > 0 {
				found = hits[0]
			}
			c.cache[path] = found
		}
		if found != nil {
			return found
		}
	}
	return nil
}

// citedPath returns the path to cite: the path of the edit, or entryPath if the edit contains it.
func (c *edit) citedPath(entryPath string) string {
	if c.op != diff.Update && slices.Contains(pathPrefixes(entryPath), c.path) {
		return entryPath
	}
	return c.path
}

// ownPath returns the topology path of a field of an entry.
func ownPath(e *Entry, field string) string {
	if paths := causePaths(e, field); len(paths) > 0 && !strings.Contains(paths[0], "[*]") {
		return paths[0]
	}
	return e.Path
}

// causePaths returns the paths of the topology that can change a field of an entry, nearest first.
// field is empty for an added or removed entry. Other paths are never causes.
func causePaths(e *Entry, field string) []string {
	entryPath := staticPath(e)
	fieldPaths := func(names ...string) []string {
		out := make([]string, len(names))
		for i, n := range names {
			out[i] = entryPath + "." + n
		}
		return out
	}
	otherClusters := []string{
		"clusters[*].podCIDRs", "clusters[*].serviceCIDRs", "clusters[*].globalnet",
	}
	cluster := "clusters[" + e.Cluster + "]"
	switch e.Kind {
	case kindClusterset:
		return settingCauses(field)
	case kindAgents:
		switch field {
		case "", "other settings":
			return []string{"agent", "metrics"}
		case "metrics.port":
			return []string{field}
		}
		return []string{"agent." + field}
	case kindCluster:
		switch field {
		case "":
			return []string{entryPath}
		case "podCIDRs", "serviceCIDRs", "dns":
			return fieldPaths(field)
		case "globalnet":
			return slices.Concat(fieldPaths("globalnet", "podCIDRs", "serviceCIDRs"), otherClusters,
				[]string{"globalnet"})
		case "globalCIDRs":
			return slices.Concat(fieldPaths("globalCIDR", "globalIPv6CIDR"), []string{"globalnet"}, fieldPaths("podCIDRs"), otherClusters)
		case "egressIPs":
			return append([]string{"globalnet.egressIPs", "globalnet"}, fieldPaths("globalCIDR", "globalIPv6CIDR", "podCIDRs")...)
		case "dynamic exports":
			return append([]string{"dynamicExports"}, fieldPaths("globalCIDR", "globalIPv6CIDR")...)
		}
		return slices.Concat(fieldPaths("podCIDRs"), []string{"globalnet"}, fieldPaths("globalnet", "globalCIDR", "globalIPv6CIDR"), otherClusters)
	case kindGateway:
		switch field {
		case "":
			return []string{entryPath}
		case "port":
			return append(fieldPaths("port"), cluster+".tunnel.port", "tunnel.port")
		case "addresses":
			return []string{"tunnel.cidr", "tunnel.ipv6Cidr", "clusters[*].podCIDRs", "clusters[*].serviceCIDRs"}
		case "public keys":
			return append(fieldPaths("publicKey"), "keys.epochs", "metadata.name")
		case "IKE keys":
			return append(fieldPaths("ikePublicKey", "publicKey"), "keys.epochs", "metadata.name")
		}
		return fieldPaths(field)
	case kindPair:
		a, b, _ := strings.Cut(e.Key, " - ")
		linkPaths := func(name string) []string {
			return []string{"links[*]." + name, "clusters[" + a + "].tunnel." + name, "clusters[" + b + "].tunnel." + name, "tunnel." + name}
		}
		if field == "" {
			return []string{"connectivity"}
		}
		return append(linkPaths(field), "links", "connectivity")
	case kindLink:
		ends := []string{entryPath}
		for end := range strings.SplitSeq(e.Key, " - ") {
			c, g, _ := strings.Cut(end, "/")
			ends = append(ends, "clusters["+c+"].gateways["+g+"]")
		}
		return append(ends, "connectivity")
	case kindEgress:
		switch field {
		case "matchLabels":
			return fieldPaths("podSelector")
		case "ips":
			return append(fieldPaths("ips"), "globalnet", cluster+".globalCIDR", cluster+".globalIPv6CIDR")
		case "":
			return []string{entryPath}
		}
		return fieldPaths(field)
	case kindKeys:
		return []string{cluster + ".recipient", cluster + ".gateways", "keys.epochs", "metadata.name", cluster}
	case kindExport:
		switch field {
		case "":
			return []string{entryPath}
		case "clusterset IPs":
			return append(fieldPaths("type"), "services", "clusters[*].podCIDRs", "clusters[*].serviceCIDRs")
		}
		return fieldPaths(field)
	case kindClusterExport:
		export, _, _ := strings.Cut(e.Key, " in ")
		x := "exports[" + export + "]"
		if field == "" {
			return []string{x + ".clusters", x, cluster}
		}
		return []string{x + ".hostnames", x + ".type", "globalnet", cluster + ".globalCIDR", cluster + ".globalIPv6CIDR",
			cluster + ".podCIDRs", x}
	case kindPage:
		switch field {
		case "", "other settings":
			return []string{"ui", "agent.imagePullSecrets"}
		case "image":
			return []string{"ui.image", "agent.image"}
		}
		return []string{"ui." + field}
	case kindFile:
		switch {
		case e.Key == "base/rbac.yaml":
			return []string{"dynamicExports", "clusters[*].egress"}
		case e.Cluster == "":
			return nil
		}
		if strings.HasSuffix(e.Key, "/policy.yaml") {
			return []string{"domain", "extraDomains", "dns", "services", cluster + ".dns", cluster + ".gateways", cluster,
				"clusters[*].podCIDRs", "clusters[*].serviceCIDRs"}
		}
		if strings.Contains(e.Key, "/exports/") {
			return []string{"exports[*].labels", "exports[*].annotations", "exports"}
		}
		return []string{cluster + ".crds", cluster}
	}
	return nil
}

// settingCauses returns the causes of the clusterset's own fields. Most of their names are paths.
func settingCauses(field string) []string {
	switch field {
	case "":
		return []string{"metadata.name"}
	case "tunnel.ipsec":
		return []string{field, "tunnel.driver", "clusters[*].tunnel.driver", "links"}
	case "globalnet.cidr", "services.cidr", "tunnel.cidr":
		return []string{field, strings.TrimSuffix(field, "cidr") + "ipv6Cidr", "clusters[*].podCIDRs", "clusters[*].serviceCIDRs"}
	case "dns.address", "dns.ipv6Address":
		return []string{field, "clusters[*].podCIDRs", "clusters[*].serviceCIDRs"}
	case "dynamicExports.namespaces", "dynamicExports[].clusters":
		return []string{"dynamicExports"}
	}
	return []string{field}
}

// staticPath returns the topology path of an entry's object.
func staticPath(e *Entry) string {
	cluster := "clusters[" + e.Cluster + "]"
	switch e.Kind {
	case kindCluster:
		return cluster
	case kindGateway:
		return fmt.Sprintf("%s.gateways[%s]", cluster, strings.TrimPrefix(e.Key, e.Cluster+"/"))
	case kindEgress:
		return fmt.Sprintf("%s.egress[%s]", cluster, strings.TrimPrefix(e.Key, e.Cluster+"/"))
	case kindExport:
		return "exports[" + e.Key + "]"
	}
	return e.Path
}
