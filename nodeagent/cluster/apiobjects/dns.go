package apiobjects

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/internal/diag"
	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/schema/fabric"
)

const dnsNamespace = "kube-system"

// keyOfDNS is the ConfigMap key of each integration. DNSNodeLocal also writes the key of
// DNSCoreDNS.
var keyOfDNS = map[string]string{
	fabric.DNSCoreDNS:   "Corefile",
	fabric.DNSNodeLocal: "Corefile",
	fabric.DNSImport:    "hawser.server",
	fabric.DNSStubZone:  "stubDomains",
}

// configMapOfDNS is the ConfigMap of each integration.
var configMapOfDNS = map[string]string{
	fabric.DNSCoreDNS:   "coredns",
	fabric.DNSNodeLocal: "node-local-dns",
	fabric.DNSImport:    "coredns-custom",
	fabric.DNSStubZone:  "kube-dns",
}

// maxReverts is the number of times that another writer may revert the forwarding. After them
// Hawser no longer restores it. Any other change of the text resets the count.
const maxReverts = 3

// DNSForwarding is the forwarding of the clusterset's domains in one ConfigMap key.
type DNSForwarding struct {
	Integration string // fabric.DNSCoreDNS, ...
	Text        string // Hawser's part

	Forward    corefile.Forward // desired
	FullText   string           // of the key, foreign text included
	OtherFiles []corefile.OtherFile
}

// Key returns the namespace and name of the ConfigMap and the key in it.
func (d DNSForwarding) Key() string {
	return dnsNamespace + "/" + configMapOfDNS[d.Integration] + "/" + keyOfDNS[d.Integration]
}

// Fields returns the text.
func (d DNSForwarding) Fields() []diff.Field { return []diff.Field{{Name: "text", Value: d.Text}} }

func desiredForwarding(integration string, f corefile.Forward) []DNSForwarding {
	if configMapOfDNS[integration] == "" || !f.Valid() {
		return nil
	}
	want := func(integration string) DNSForwarding {
		return DNSForwarding{Integration: integration, Text: "forward " + strings.Join(f.Zones, " "), Forward: f}
	}
	if integration == fabric.DNSNodeLocal {
		// Pods query CoreDNS on nodes without the cache.
		return []DNSForwarding{want(fabric.DNSCoreDNS), want(fabric.DNSNodeLocal)}
	}
	return []DNSForwarding{want(integration)}
}

// isCorefile reports whether an integration writes a block into a Corefile.
func isCorefile(integration string) bool { return keyOfDNS[integration] == keyOfDNS[fabric.DNSCoreDNS] }

// splitBlock splits a text into Hawser's part and the rest. It reports whether Hawser's part
// exists.
func splitBlock(integration, text string, f corefile.Forward) (block, rest string, ok bool) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.SplitBlock(text)
	case fabric.DNSImport:
		return text, "", text != ""
	}
	zones, rest, err := corefile.SplitStub(text, f)
	return strings.Join(zones, " "), rest, err == nil && len(zones) > 0
}

// withBlock returns the text with Hawser's part as desired. The text is valid even with an error.
// The error names the zones that the part omits, or why the text did not change.
func withBlock(integration, text string, f corefile.Forward, others []corefile.OtherFile) (string, error) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Insert(text, f, others...)
	case fabric.DNSImport:
		return f.File(others...)
	}
	return corefile.InsertStub(text, f)
}

func withoutBlock(integration, text string, f corefile.Forward) (string, error) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Remove(text)
	case fabric.DNSImport:
		return "", nil
	}
	return corefile.RemoveStub(text, f)
}

// otherFiles returns the other texts of CoreDNS that matter to an integration.
func otherFiles(integration string, all map[string]*corev1.ConfigMap) []corefile.OtherFile {
	var out []corefile.OtherFile
	if integration != fabric.DNSCoreDNS && integration != fabric.DNSImport {
		return nil
	}
	for _, of := range []string{fabric.DNSCoreDNS, fabric.DNSImport} {
		place := dnsNamespace + "/" + configMapOfDNS[of]
		if all[place] == nil {
			continue
		}
		data := all[place].Data
		for _, key := range slices.Sorted(maps.Keys(data)) {
			counts := key == keyOfDNS[of] && of != integration && of == fabric.DNSCoreDNS ||
				of == fabric.DNSImport && strings.HasSuffix(key, ".server") && key != keyOfDNS[of]
			if counts {
				out = append(out, corefile.OtherFile{Name: place + "/" + key, Text: data[key]})
			}
		}
	}
	return out
}

// dnsKind is the kind of the forwarding in the cluster's own DNS.
type dnsKind struct {
	*writeContext
	table   *resourceCache[*corev1.ConfigMap]
	reverts map[string]*revertHistory // by integration
}

// revertHistory counts how often another writer reverted the forwarding.
type revertHistory struct {
	rest       string // foreign text and the desired forwarding; a change resets the count
	wasCorrect bool   // at the last observation
	times      int
	by         string
}

// KindDNS is the name of dnsKind.
const KindDNS = "dns"

// Name returns KindDNS.
func (k *dnsKind) Name() string { return KindDNS }

// Observe returns the keys that contain text of Hawser.
func (k *dnsKind) Observe(context.Context) ([]DNSForwarding, error) {
	if k.dnsTargetUnknown {
		return nil, k.table.unknown()
	}
	all, err := k.table.snapshot()
	if err != nil {
		return nil, err
	}
	var out []DNSForwarding
	for integration, name := range configMapOfDNS {
		o := all[dnsNamespace+"/"+name]
		if o == nil {
			continue
		}
		text := o.Data[keyOfDNS[integration]]
		block, rest, ok := splitBlock(integration, text, k.forward)
		others := otherFiles(integration, all)
		k.trackReverts(integration, text, rest, others, o)
		if ok {
			out = append(out, DNSForwarding{Integration: integration, Text: block, FullText: text, OtherFiles: others})
		}
	}
	return out, nil
}

// trackReverts counts a revert if a correct text has become incorrect since the last observation.
func (k *dnsKind) trackReverts(integration, text, rest string, others []corefile.OtherFile, o *corev1.ConfigMap) {
	should, _ := withBlock(integration, text, k.forward, others)
	right := should == text
	rest += fmt.Sprint("\x00", k.forward, others)
	u := k.reverts[integration]
	if u == nil || u.rest != rest {
		k.reverts[integration] = &revertHistory{rest: rest, wasCorrect: right}
		return
	}
	if u.wasCorrect && !right {
		u.times++
		by, at := "another writer", ""
		for _, f := range o.GetManagedFields() {
			if f.Time != nil && f.Manager != fabric.FieldManager && f.Time.UTC().String() >= at {
				by, at = f.Manager, f.Time.UTC().String()
			}
		}
		u.by = by
	}
	u.wasCorrect = right
}

// Normalize sets the text of want to the text that Apply would write.
func (k *dnsKind) Normalize(want, have DNSForwarding) DNSForwarding {
	want.FullText = have.FullText
	should, err := withBlock(want.Integration, have.FullText, want.Forward, have.OtherFiles)
	// With an error the change stays, so that each pass reports the error.
	if err == nil {
		want.Text, _, _ = splitBlock(want.Integration, should, want.Forward)
	}
	return want
}

// Apply applies the changes.
func (k *dnsKind) Apply(ctx context.Context, list []diff.Change[DNSForwarding]) error {
	return converge.Each(ctx, list, func(c diff.Change[DNSForwarding]) error {
		integration := c.Want.Integration
		if c.Op == diff.Delete {
			integration = c.Have.Integration
		}
		all, err := k.table.snapshot()
		if err != nil {
			return err
		}
		o := all[dnsNamespace+"/"+configMapOfDNS[integration]]
		switch {
		case o == nil && c.Op == diff.Delete:
			return nil
		case o == nil:
			return converge.ErrBlocked{On: fmt.Sprintf("ConfigMap %s/%s; if the cluster has another DNS, set clusters[].dns in the topology",
				dnsNamespace, configMapOfDNS[integration])}
		}
		if err := k.write(ctx, c.Op, integration, o, otherFiles(integration, all)); err != nil {
			place := dnsNamespace + "/" + configMapOfDNS[integration] + "/" + keyOfDNS[integration]
			var d diag.Diagnostic
			if errors.As(err, &d) {
				d.Pos.File = cmp.Or(d.Pos.File, place)
				return fmt.Errorf("%w; %s", d, d.Hint)
			}
			var blocked converge.ErrBlocked
			if errors.As(err, &blocked) {
				return err
			}
			return fmt.Errorf("%s: %w", place, err)
		}
		return nil
	})
}

func (k *dnsKind) write(ctx context.Context, op diff.Op, integration string, o *corev1.ConfigMap, others []corefile.OtherFile) error {
	text, ok := o.Data[keyOfDNS[integration]]
	if !ok && isCorefile(integration) {
		return fmt.Errorf("the ConfigMap has no key %s", keyOfDNS[integration])
	}
	var after string
	var incomplete error
	if op == diff.Delete {
		after, incomplete = withoutBlock(integration, text, k.forward)
		delete(k.reverts, integration)
	} else if u := k.reverts[integration]; u != nil && u.times >= maxReverts {
		return fmt.Errorf("%w: %s removed it %d times; Hawser does not restore it until the text around it changes. "+
			"Add it to the source of that writer, or set another clusters[].dns, such as none", converge.ErrFight, u.by, u.times)
	} else {
		after, incomplete = withBlock(integration, text, k.forward, others)
	}
	if after == text {
		return incomplete
	}
	var value any = after
	if after == "" && !isCorefile(integration) {
		value = nil
	}
	if err := k.table.merge(ctx, o, map[string]any{"data": map[string]any{keyOfDNS[integration]: value}}); err != nil {
		return err
	}
	return incomplete
}

// Property is a ClusterProperty (KEP-2149).
type Property struct {
	Name  string
	Value string
}

// Key returns the name.
func (p Property) Key() string { return p.Name }

// Fields returns the value.
func (p Property) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: p.Value}} }

func desiredProperties(entries map[string]string) []Property {
	var out []Property
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, Property{Name: name, Value: entries[name]})
	}
	return out
}

// clusterProperty has the fields of a ClusterProperty that Hawser reads.
type clusterProperty struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Value string `json:"value"`
	} `json:"spec"`
}

// newProperties returns the kind of ClusterProperties.
func newProperties(w *writeContext, table *resourceCache[*clusterProperty]) *ownedKind[Property, *clusterProperty] {
	return &ownedKind[Property, *clusterProperty]{
		writeContext: w, table: table,
		decode: func(o *clusterProperty) Property { return Property{Name: o.Name, Value: o.Spec.Value} },
		write: func(ctx context.Context, c diff.Change[Property], seen *clusterProperty) error {
			o := table.body("", c.Want.Name, uidOf(seen))
			o.SetLabels(map[string]string{fabric.ManagedByLabel: fabric.ManagedByValue})
			o.Object["spec"] = map[string]any{"value": c.Want.Value}
			return table.apply(ctx, o, seen != nil)
		},
	}
}
