package schema

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"hawser.dev/hawser/schema/tags"
)

// Default sets every empty field to the default in its struct tag. It is idempotent.
// The pools of a family and the DNS address have a default if some cluster has a
// prefix of that family. Without any prefix the IPv4 defaults apply.
func Default(s *ClusterSet) {
	unneeded := s.unneededDefaults()
	fillDefaults(reflect.ValueOf(s).Elem())
	for _, unset := range unneeded {
		unset()
	}
	s.defaultIPv6()
}

func fillDefaults(v reflect.Value) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			f, field := v.Type().Field(i), v.Field(i)
			text, ok := f.Tag.Lookup("default")
			switch {
			case !f.IsExported():
			case !ok:
				fillDefaults(field)
			case field.IsZero() || field.Kind() == reflect.Slice && field.Len() == 0:
				if err := tags.Set(field, text); err != nil {
					panic(fmt.Sprintf("schema: default of %s: %v", f.Name, err)) // the struct tag is invalid
				}
			}
		}
	case reflect.Slice:
		for i := range v.Len() {
			fillDefaults(v.Index(i))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			fillDefaults(v.Elem())
		}
	}
}

// DNSIPv6 is the default IPv6 address at which agents answer DNS queries. It never leaves
// a node, so every clusterset can use the same one.
const DNSIPv6 = "fd68:6177:7365:72::53"

// HasFamily reports whether some cluster has a prefix of the family.
func (s *ClusterSet) HasFamily(six bool) bool {
	return slices.ContainsFunc(s.Spec.Clusters, func(c Cluster) bool {
		return slices.ContainsFunc(c.CIDRs(), func(p netip.Prefix) bool { return p.IsValid() && p.Addr().Is6() == six })
	})
}

// unneededDefaults returns functions that remove the IPv4 defaults again if all prefixes
// of the clusterset are IPv6. Values from the file are kept.
func (s *ClusterSet) unneededDefaults() []func() {
	if s.HasFamily(false) || !s.HasFamily(true) {
		return nil
	}
	var out []func()
	for _, p := range []*netip.Prefix{&s.Spec.Globalnet.CIDR, &s.Spec.Services.CIDR, &s.Spec.Tunnel.CIDR} {
		if !p.IsValid() {
			out = append(out, func() { *p = netip.Prefix{} })
		}
	}
	if a := &s.Spec.DNS.Address; !a.IsValid() {
		out = append(out, func() { *a = netip.Addr{} })
	}
	return out
}

// defaultIPv6 sets the empty IPv6 pools and the IPv6 DNS address of a clusterset that has
// IPv6 prefixes.
func (s *ClusterSet) defaultIPv6() {
	if !s.HasFamily(true) {
		return
	}
	spec, name := &s.Spec, s.Metadata.Name
	for _, d := range []struct {
		field *netip.Prefix
		value netip.Prefix
	}{
		{&spec.Globalnet.IPv6CIDR, uniqueLocal(name+"/globalnet", 0, 48)},
		{&spec.Services.IPv6CIDR, uniqueLocal(name, 1, 64)},
		{&spec.Tunnel.IPv6CIDR, uniqueLocal(name, 2, 64)},
	} {
		if !d.field.IsValid() {
			*d.field = d.value
		}
	}
	if !spec.DNS.IPv6Address.IsValid() && !spec.DNS.Address.Is6() {
		spec.DNS.IPv6Address = netip.MustParseAddr(DNSIPv6)
	}
}

// uniqueLocal returns a prefix of a unique local network (RFC 4193). The 40 bits of
// its global ID are a hash of the name instead of random. They are the same on every
// machine that reads the file, and differ between clustersets.
func uniqueLocal(name string, subnet byte, bits int) netip.Prefix {
	sum := sha256.Sum256([]byte("hawser unique local/" + name))
	raw := [16]byte{0: 0xfd, 7: subnet}
	copy(raw[1:6], sum[:])
	return netip.PrefixFrom(netip.AddrFrom16(raw), bits)
}
