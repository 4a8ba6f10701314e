package overlap

import (
	"fmt"
	"net/netip"
	"slices"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/schema"
)

// Use is one prefix in the file.
type Use struct {
	Path   string
	Prefix netip.Prefix
	Six    bool // the field is for IPv6
}

// Pools returns the pools that are set.
func Pools(s *schema.ClusterSet) []Use {
	spec := &s.Spec
	pools := []Use{
		{"globalnet.cidr", spec.Globalnet.CIDR, false}, {"globalnet.ipv6Cidr", spec.Globalnet.IPv6CIDR, true},
		{"services.cidr", spec.Services.CIDR, false}, {"services.ipv6Cidr", spec.Services.IPv6CIDR, true},
		{"tunnel.cidr", spec.Tunnel.CIDR, false}, {"tunnel.ipv6Cidr", spec.Tunnel.IPv6CIDR, true},
	}
	return slices.DeleteFunc(pools, func(u Use) bool { return !u.Prefix.IsValid() })
}

// Pins returns the fixed blocks of the cluster at path.
func Pins(c *schema.Cluster, path string) []Use {
	pins := []Use{{path + ".globalCIDR", c.GlobalCIDR, false}, {path + ".globalIPv6CIDR", c.GlobalIPv6CIDR, true}}
	return slices.DeleteFunc(pins, func(u Use) bool { return !u.Prefix.IsValid() })
}

// Report adds a finding at u: it overlaps other.
func Report(found *diag.Findings, u, other Use, hint string) {
	found.Fail("overlap", u.Path, fmt.Sprintf("%s overlaps %s %s", u.Prefix, other.Path, other.Prefix), hint, other.Path)
}
