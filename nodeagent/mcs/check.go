package mcs

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"hawser.dev/hawser/schema/fabric"
)

// Limits of an offer. They are far above the limits of a Service. They prevent a cluster from
// exhausting the memory of agents in other clusters.
const (
	maxPorts      = 256
	maxLabelBytes = 64 << 10 // bytes of all keys and values; labels and annotations each
)

// MaxOffers limits the dynamic exports of one cluster; only the oldest are valid.
const MaxOffers = 8192

// youngestBeyondMax returns the indexes of the youngest exports if a cluster has more than
// MaxOffers. createdAndKey returns the creation time of export i, and its key, which breaks ties.
func youngestBeyondMax(count int, createdAndKey func(i int) (time.Time, string)) []int {
	if count <= MaxOffers {
		return nil
	}
	order := make([]int, count)
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		createdA, keyA := createdAndKey(a)
		createdB, keyB := createdAndKey(b)
		return cmp.Or(createdA.Compare(createdB), cmp.Compare(keyA, keyB))
	})
	return order[MaxOffers:]
}

// Check returns an error if other clusters would refuse the offer. A cluster checks its own offers
// too.
func (o *Offer) Check() error {
	if len(o.Ports) > maxPorts {
		return fmt.Errorf("it has %d ports, which is more than %d", len(o.Ports), maxPorts)
	}
	for _, p := range o.Ports {
		if p.Protocol != "TCP" && p.Protocol != "UDP" && p.Protocol != "SCTP" || p.Port < 1 || p.Port > 65535 {
			return fmt.Errorf("port %q is no port of a service", p.Name)
		}
		if p.Name != "" && !fabric.IsLabel(p.Name) {
			return fmt.Errorf("the name of port %d is no DNS label", p.Port)
		}
		if p.AppProtocol != "" && !fabric.IsQualified(p.AppProtocol) {
			return fmt.Errorf("the appProtocol of port %d is no qualified name", p.Port)
		}
	}
	for _, text := range []string{o.Affinity, o.InternalTrafficPolicy, o.TrafficDistribution} {
		if text != "" && !fabric.IsLabelText(text) {
			return errors.New("its affinity, internalTrafficPolicy or trafficDistribution is invalid")
		}
	}
	if y := o.Created.UTC().Year(); y < 0 || y > 9998 {
		return errors.New("its creation time is invalid")
	}
	if o.AffinitySeconds < 0 || len(o.Addrs) > 2 || len(o.Families) > 2 {
		return errors.New("a number in it is out of range")
	}
	for _, a := range o.Addrs {
		if !a.IsValid() || a.Zone() != "" || a.Is4In6() {
			return errors.New("it has an invalid address")
		}
	}
	for _, fam := range o.Families {
		if fam != 4 && fam != 6 {
			return errors.New("it has an invalid IP family")
		}
	}
	for _, all := range []map[string]string{o.Labels, o.Annotations} {
		size := 0
		for key, value := range all {
			size += len(key) + len(value)
		}
		if size > maxLabelBytes {
			return fmt.Errorf("its labels or annotations have %d bytes, which is more than %d", size, maxLabelBytes)
		}
	}
	return nil
}

// isPropagated reports whether a label or annotation may be copied from an export to the
// imports of all clusters. KEP-1645 defines two labels in a reserved domain; both may be copied.
func isPropagated(key string) bool {
	if key == "multicluster.kubernetes.io/service-name" || key == "multicluster.kubernetes.io/source-cluster" {
		return true
	}
	domain, _, found := strings.Cut(strings.ToLower(key), "/")
	// Controllers act on labels of these domains.
	for _, r := range []string{"kubernetes.io", "k8s.io", "hawser.dev"} {
		if found && (domain == r || strings.HasSuffix(domain, "."+r)) {
			return false
		}
	}
	return true
}

// shared returns the offer without the labels and annotations that imports must not have. The
// import in the exporting cluster must not have them either.
func (o *Offer) shared() *Offer {
	out := *o
	out.Labels, out.Annotations = shareable(o.Labels), shareable(o.Annotations)
	if len(out.Labels) == len(o.Labels) && len(out.Annotations) == len(o.Annotations) {
		return o
	}
	return &out
}

// shareable returns the entries that imports may have. If imports may have all, it returns
// entries itself instead of a copy.
func shareable(entries map[string]string) map[string]string {
	out := entries
	for key := range entries {
		if isPropagated(key) {
			continue
		}
		if len(out) == len(entries) {
			out = maps.Clone(entries)
		}
		delete(out, key)
	}
	return out
}
