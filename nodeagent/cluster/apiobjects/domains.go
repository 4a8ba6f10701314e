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

// keyOfDNS is where in its ConfigMap each integration writes; with DNSNodeLocal there
// is what DNSCoreDNS writes besides.
var keyOfDNS = map[string]string{
	fabric.DNSCoreDNS:   "Corefile",
	fabric.DNSNodeLocal: "Corefile",
	fabric.DNSImport:    "hawser.server",
	fabric.DNSStubZone:  "stubDomains",
}

// mapOfDNS is the ConfigMap of each integration.
var mapOfDNS = map[string]string{
	fabric.DNSCoreDNS:   "coredns",
	fabric.DNSNodeLocal: "node-local-dns",
	fabric.DNSImport:    "coredns-custom",
	fabric.DNSStubZone:  "kube-dns",
}

// undoneMost is how often somebody may take out what we wrote while all else stays
// the same, before it is left to them: until they change anything else.
const undoneMost = 3

// DNSForwarding is what leads the clusterset's domains to the agents, in one place.
type DNSForwarding struct {
	Integration string // fabric.DNSCoreDNS, ...
	Text        string // that is ours

	Forward    corefile.Forward // wanted
	FullText   string           // all that stands there
	OtherFiles []corefile.OtherFile
}

// Key is the ConfigMap and the key in it.
func (d DNSForwarding) Key() string {
	return dnsNamespace + "/" + mapOfDNS[d.Integration] + "/" + keyOfDNS[d.Integration]
}

// Fields gives the text.
func (d DNSForwarding) Fields() []diff.Field { return []diff.Field{{Name: "text", Value: d.Text}} }

func wantDomains(integration string, f corefile.Forward) []DNSForwarding {
	if mapOfDNS[integration] == "" || !f.Valid() {
		return nil
	}
	want := func(integration string) DNSForwarding {
		return DNSForwarding{Integration: integration, Text: "forward " + strings.Join(f.Zones, " "), Forward: f}
	}
	if integration == fabric.DNSNodeLocal {
		// Where the cache is not there, pods ask CoreDNS.
		return []DNSForwarding{want(fabric.DNSCoreDNS), want(fabric.DNSNodeLocal)}
	}
	return []DNSForwarding{want(integration)}
}

// isCorefile says that an integration writes a block into a Corefile.
func isCorefile(integration string) bool { return keyOfDNS[integration] == keyOfDNS[fabric.DNSCoreDNS] }

// splitBlock gives what is ours of a text, all else, and whether there is any.
func splitBlock(integration, text string, f corefile.Forward) (block, rest string, is bool) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.SplitBlock(text)
	case fabric.DNSImport:
		return text, "", text != ""
	}
	zones, rest, err := corefile.SplitStub(text, f)
	return strings.Join(zones, " "), rest, err == nil && len(zones) > 0
}

// withBlock gives a text with ours as it should be, and without what is ours.
// The former holds whatever the error says is wrong.
func withBlock(integration, text string, f corefile.Forward, beside []corefile.OtherFile) (string, error) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Insert(text, f, beside...)
	case fabric.DNSImport:
		return f.File(beside...)
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

// otherFiles gives the texts of CoreDNS next to the one that an integration writes.
func otherFiles(integration string, all map[string]*corev1.ConfigMap) []corefile.OtherFile {
	var out []corefile.OtherFile
	if integration != fabric.DNSCoreDNS && integration != fabric.DNSImport {
		return nil
	}
	for _, of := range []string{fabric.DNSCoreDNS, fabric.DNSImport} {
		place := dnsNamespace + "/" + mapOfDNS[of]
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

// dnsKind is the kind of what is written into the cluster's own DNS.
type dnsKind struct {
	*writeContext
	table  *resourceCache[*corev1.ConfigMap]
	undone map[string]*revertHistory // by integration
}

// revertHistory counts how often somebody took out what we wrote.
type revertHistory struct {
	rest       string // all that is not ours, and what we want there
	wasCorrect bool   // ours was as it should be when it was looked at last
	times      int
	by         string
}

// KindDNS names the kind of what leads the cluster's own DNS to the agents.
const KindDNS = "dns"

// Name is KindDNS.
func (k *dnsKind) Name() string { return KindDNS }

// Observe gives the places where anything of ours stands.
func (k *dnsKind) Observe(context.Context) ([]DNSForwarding, error) {
	if k.dnsTargetUnknown {
		return nil, k.table.unknown()
	}
	all, err := k.table.snapshot()
	if err != nil {
		return nil, err
	}
	var out []DNSForwarding
	for integration, name := range mapOfDNS {
		o := all[dnsNamespace+"/"+name]
		if o == nil {
			continue
		}
		text := o.Data[keyOfDNS[integration]]
		block, rest, is := splitBlock(integration, text, k.forward)
		beside := otherFiles(integration, all)
		k.trackReverts(integration, text, rest, beside, o)
		if is {
			out = append(out, DNSForwarding{Integration: integration, Text: block, FullText: text, OtherFiles: beside})
		}
	}
	return out, nil
}

// trackReverts looks whether somebody took out what was right.
func (k *dnsKind) trackReverts(integration, text, rest string, beside []corefile.OtherFile, o *corev1.ConfigMap) {
	should, _ := withBlock(integration, text, k.forward, beside)
	right := should == text
	rest += fmt.Sprint("\x00", k.forward, beside)
	u := k.undone[integration]
	if u == nil || u.rest != rest {
		k.undone[integration] = &revertHistory{rest: rest, wasCorrect: right}
		return
	}
	if u.wasCorrect && !right {
		u.times++
		by, at := "somebody", ""
		for _, f := range o.GetManagedFields() {
			if f.Time != nil && f.Manager != fabric.FieldManager && f.Time.UTC().String() >= at {
				by, at = f.Manager, f.Time.UTC().String()
			}
		}
		u.by = by
	}
	u.wasCorrect = right
}

// Normalize makes want the text that would stand there.
func (k *dnsKind) Normalize(want, have DNSForwarding) DNSForwarding {
	want.FullText = have.FullText
	should, err := withBlock(want.Integration, have.FullText, want.Forward, have.OtherFiles)
	// With an error it stays a change, which tells it each time.
	if err == nil {
		want.Text, _, _ = splitBlock(want.Integration, should, want.Forward)
	}
	return want
}

// Apply makes the changes.
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
		o := all[dnsNamespace+"/"+mapOfDNS[integration]]
		switch {
		case o == nil && c.Op == diff.Delete:
			return nil
		case o == nil:
			return converge.ErrBlocked{On: fmt.Sprintf("ConfigMap %s/%s; or say in clusters[].dns of the topology which DNS the cluster has",
				dnsNamespace, mapOfDNS[integration])}
		}
		if err := k.write(ctx, c.Op, integration, o, otherFiles(integration, all)); err != nil {
			place := dnsNamespace + "/" + mapOfDNS[integration] + "/" + keyOfDNS[integration]
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

func (k *dnsKind) write(ctx context.Context, op diff.Op, integration string, o *corev1.ConfigMap, beside []corefile.OtherFile) error {
	text, there := o.Data[keyOfDNS[integration]]
	if !there && isCorefile(integration) {
		return fmt.Errorf("there is no %s in it", keyOfDNS[integration])
	}
	var after string
	var wrong error
	if op == diff.Delete {
		after, wrong = withoutBlock(integration, text, k.forward)
		delete(k.undone, integration)
	} else if u := k.undone[integration]; u != nil && u.times >= undoneMost {
		return fmt.Errorf("%w: %s took it out %d times; it is left to them until anything else is changed there. "+
			"Add it to what they write, or say another clusters[].dns, such as none", converge.ErrFight, u.by, u.times)
	} else {
		after, wrong = withBlock(integration, text, k.forward, beside)
	}
	if after == text {
		return wrong
	}
	var value any = after
	if after == "" && !isCorefile(integration) {
		value = nil
	}
	if err := k.table.merge(ctx, o, map[string]any{"data": map[string]any{keyOfDNS[integration]: value}}); err != nil {
		return err
	}
	return wrong
}

// Property is a ClusterProperty (KEP-2149).
type Property struct {
	Name  string
	Value string
}

// Key is the name.
func (p Property) Key() string { return p.Name }

// Fields gives the value.
func (p Property) Fields() []diff.Field { return []diff.Field{{Name: "value", Value: p.Value}} }

func wantProperties(entries map[string]string) []Property {
	var out []Property
	for _, name := range slices.Sorted(maps.Keys(entries)) {
		out = append(out, Property{Name: name, Value: entries[name]})
	}
	return out
}

// clusterProperty is a ClusterProperty as far as we read it.
type clusterProperty struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Value string `json:"value"`
	} `json:"spec"`
}

// newProperties makes the kind of ClusterProperties.
func newProperties(turn *writeContext, table *resourceCache[*clusterProperty]) *ownedKind[Property, *clusterProperty] {
	return &ownedKind[Property, *clusterProperty]{
		writeContext: turn, table: table,
		decode: func(o *clusterProperty) Property { return Property{Name: o.Name, Value: o.Spec.Value} },
		write: func(ctx context.Context, c diff.Change[Property], seen *clusterProperty) error {
			o := table.body("", c.Want.Name, uidOf(seen))
			o.SetLabels(map[string]string{fabric.ManagedByLabel: fabric.ManagedByValue})
			o.Object["spec"] = map[string]any{"value": c.Want.Value}
			return table.apply(ctx, o, seen != nil)
		},
	}
}
