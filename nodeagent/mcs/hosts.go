package mcs

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"hawser.dev/hawser/internal/humanize"
	"hawser.dev/hawser/schema/fabric"
)

// MaxHosts limits the pods of one cluster's headless export: pods with their own addresses, and
// pods that other clusters resolve.
const MaxHosts = 256

// ParseAddresses parses the text of AddressesAnnotation. It returns the addresses of the export, at
// most one per family. For a headless export it returns its pods with their addresses, as in
// db-0=242.0.0.1, sorted by name. It skips invalid items.
func ParseAddresses(text string) (addrs []netip.Addr, hosts []fabric.Host) {
	byName := map[string][]netip.Addr{}
	for item := range strings.SplitSeq(text, ",") {
		name, at, named := strings.Cut(strings.TrimSpace(item), "=")
		if !named {
			name, at = "", name
		}
		a, err := netip.ParseAddr(at)
		if err != nil || a.Zone() != "" || named && name == "" {
			continue
		}
		a = a.Unmap()
		if !slices.ContainsFunc(byName[name], func(b netip.Addr) bool { return fabric.Family(a) == fabric.Family(b) }) {
			byName[name] = append(byName[name], a)
		}
	}
	for name, held := range byName {
		slices.SortFunc(held, netip.Addr.Compare)
		if name != "" {
			hosts = append(hosts, fabric.Host{Name: name, IPs: held})
		}
	}
	slices.SortFunc(hosts, func(a, b fabric.Host) int { return cmp.Compare(a.Name, b.Name) })
	return byName[""], hosts
}

// FormatAddresses returns the text that ParseAddresses reads.
func FormatAddresses(addrs []netip.Addr, hosts []fabric.Host) string {
	var out []string
	for _, a := range addrs {
		out = append(out, a.String())
	}
	for _, h := range hosts {
		for _, a := range h.IPs {
			out = append(out, h.Name+"="+a.String())
		}
	}
	return strings.Join(out, ",")
}

// ConfirmsAddresses reports whether the message of the condition Ready contains the annotation's
// addresses. Only gateways write the status, so a match means that the annotation is unchanged.
func (e *Export) ConfirmsAddresses(message string) bool {
	if len(e.Hosts) > 0 {
		return strings.HasSuffix(message, podsAt(e.Hosts))
	}
	_, at, found := strings.Cut(message, exportedAt)
	addrs, _ := ParseAddresses(at)
	return found && len(addrs) > 0 && slices.Equal(addrs, e.Addrs)
}

// exportedAt precedes the addresses of an export in the message of Ready.
const exportedAt = " at "

// podsAt returns the end of the message of Ready: a digest of the recorded addresses of a headless
// export's pods, whose full list would be too long.
func podsAt(hosts []fabric.Host) string {
	if len(hosts) == 0 {
		return ""
	}
	sum := sha256.Sum256([]byte(FormatAddresses(nil, hosts)))
	return ", record " + hex.EncodeToString(sum[:8])
}

// hostsOf returns the pods of a headless export that should have addresses: present pods, and
// pods with a recorded address, which may return. If there are more than MaxHosts, present pods
// come first, and among them pods with an address.
func hostsOf(e *Export, present []string) []string {
	here := map[string]bool{}
	for _, name := range present {
		here[name] = true
	}
	had := map[string]bool{}
	for _, h := range e.Hosts {
		had[h.Name] = true
	}
	var out []string
	for _, all := range []map[string]bool{here, had} {
		for name := range all {
			if name != "" && !strings.ContainsAny(name, ",=") {
				out = append(out, name)
			}
		}
	}
	rank := func(name string) int {
		switch {
		case here[name] && had[name]:
			return 0
		case here[name]:
			return 1
		}
		return 2
	}
	slices.SortFunc(out, func(a, b string) int { return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(a, b)) })
	out = slices.Compact(out)
	return out[:min(len(out), MaxHosts)]
}

// hostRequests returns a request for each pod of a headless export. Its families are those in which
// other clusters cannot reach the pods at their own addresses.
func hostRequests(v *ExportResult, own *fabric.Cluster, present map[string][]string) (asks []AllocationRequest, names []string) {
	if present == nil {
		return nil, nil
	}
	var hidden []int
	for _, fam := range v.Offer.Families {
		if own.IsGlobalnet(fam) {
			hidden = append(hidden, fam)
		}
	}
	if len(hidden) == 0 {
		return nil, nil
	}
	names = hostsOf(v.Export, present[v.Export.id()])
	for _, name := range names {
		ask := AllocationRequest{Key: v.Export.id() + "/" + name, Created: v.Export.Created, Families: hidden, InUse: v.Export.AddressesConfirmed}
		if i := slices.IndexFunc(v.Export.Hosts, func(h fabric.Host) bool { return h.Name == name }); i >= 0 {
			ask.Current = v.Export.Hosts[i].IPs
		}
		asks = append(asks, ask)
	}
	return asks, names
}

// readyHosts returns the condition Ready of a headless export.
func (v *ExportResult) readyHosts(own *fabric.Cluster) Condition {
	switch {
	case v.Full:
		return Condition{Ready, isFalse, reasonFailed, fmt.Sprintf(
			"no address is left for some of its pods in %s of cluster %s: give the cluster a larger globalCIDR, or export less%s",
			humanize.Join(own.Dynamic, ", "), own.Name, podsAt(v.RecordedHosts))}
	case len(v.RecordedHosts) < len(v.Hosts):
		return Condition{Ready, isFalse, reasonPending, "the addresses of some of its pods are not recorded yet" + podsAt(v.RecordedHosts)}
	}
	return Condition{Ready, isTrue, reasonExported, "exported from cluster " + own.Name + podsAt(v.RecordedHosts)}
}
