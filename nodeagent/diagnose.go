package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"time"

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/nodeagent/trace"
	"hawser.dev/hawser/schema/fabric"
)

// How long packets may be followed.
const (
	leastDiagnosis = 2 * time.Second
	mostDiagnosis  = 5 * time.Minute
)

var errDiagnosing = errors.New("packets are being followed already: ask again when that has ended")

// diagnose follows packets of the clusterset for a time.
func (a *Agent) diagnose(ctx context.Context, long time.Duration) (status.Diagnosis, error) {
	if !a.diagnosing.TryLock() {
		return status.Diagnosis{}, errDiagnosing
	}
	defer a.diagnosing.Unlock()
	in, ok := a.inputs.now()
	if !ok {
		return status.Diagnosis{}, errors.New("there is no fabric yet that says what belongs to the clusterset")
	}
	steps, lasted, err := trace.Watch(ctx, packetsOf(in.fabric, a.config.Cluster), long)
	if err != nil {
		return status.Diagnosis{}, err
	}
	return trace.Judge(steps, lasted), nil
}

// serveDiagnosis answers GET /diagnose?for=10s.
func (a *Agent) serveDiagnosis(w http.ResponseWriter, r *http.Request) {
	long, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil || long < leastDiagnosis || long > mostDiagnosis {
		http.Error(w, fmt.Sprintf("for: a time from %s to %s", leastDiagnosis, mostDiagnosis), http.StatusBadRequest)
		return
	}
	d, err := a.diagnose(r.Context(), long)
	if err != nil {
		http.Error(w, err.Error(), http.StatusConflict)
		return
	}
	a.send(w, d)
}

// packetsOf gives what belongs to the clusterset on nodes of a cluster: clusterset IPs,
// global addresses, what flat clusters show of themselves, and DNS. Probes and feeds
// between gateways do not.
func packetsOf(f *fabric.Fabric, own string) trace.Filter {
	all := slices.Concat(f.ServicePools, f.GlobalPools)
	if f.DynamicExports != nil {
		all = append(all, f.DynamicExports.VIPs...)
	}
	for i := range f.Clusters {
		c := &f.Clusters[i]
		all = append(all, c.GlobalCIDRs...)
		for _, p := range slices.Concat(c.PodCIDRs, c.ServiceCIDRs) {
			if c.Name != own && !c.Hides(familyOf(p)) {
				all = append(all, p)
			}
		}
	}
	for _, addr := range f.DNS.Addresses() {
		all = append(all, netip.PrefixFrom(addr, addr.BitLen()))
	}
	return trace.Filter{Prefixes: outermost(all), Not: slices.Clone(f.TunnelPools)}
}

func familyOf(p netip.Prefix) int {
	if p.Addr().Is4() {
		return 4
	}
	return 6
}

// outermost leaves out prefixes that are in another one, and gives the rest in order.
func outermost(all []netip.Prefix) []netip.Prefix {
	all = slices.Clone(all)
	slices.SortFunc(all, func(a, b netip.Prefix) int {
		if a.Bits() != b.Bits() {
			return a.Bits() - b.Bits()
		}
		return a.Addr().Compare(b.Addr())
	})
	var out []netip.Prefix
	for _, p := range all {
		if !slices.ContainsFunc(out, func(o netip.Prefix) bool { return o.Bits() <= p.Bits() && o.Contains(p.Addr()) }) {
			out = append(out, p)
		}
	}
	return out
}
