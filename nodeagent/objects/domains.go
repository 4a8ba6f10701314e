package objects

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
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/objects/corefile"
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

// Domain is what leads the clusterset's domains to the agents, in one place.
type Domain struct {
	Integration string // fabric.DNSCoreDNS, ...
	Text        string // that is ours

	Forward corefile.Forward // wanted
	Whole   string           // all that stands there
	Beside  []corefile.Beside
}

// Key is the ConfigMap and the key in it.
func (d Domain) Key() string {
	return dnsNamespace + "/" + mapOfDNS[d.Integration] + "/" + keyOfDNS[d.Integration]
}

// Fields gives the text.
func (d Domain) Fields() []diff.Field { return []diff.Field{{Name: "text", Value: d.Text}} }

func wantDomains(integration string, f corefile.Forward) []Domain {
	if mapOfDNS[integration] == "" || !f.Valid() {
		return nil
	}
	want := func(integration string) Domain {
		return Domain{Integration: integration, Text: "forward " + strings.Join(f.Zones, " "), Forward: f}
	}
	if integration == fabric.DNSNodeLocal {
		// Where the cache is not there, pods ask CoreDNS.
		return []Domain{want(fabric.DNSCoreDNS), want(fabric.DNSNodeLocal)}
	}
	return []Domain{want(integration)}
}

// isCorefile says that an integration writes a block into a Corefile.
func isCorefile(integration string) bool { return keyOfDNS[integration] == keyOfDNS[fabric.DNSCoreDNS] }

// ours gives what is ours of a text, all else, and whether there is any.
func ours(integration, text string, f corefile.Forward) (block, rest string, is bool) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Block(text)
	case fabric.DNSImport:
		return text, "", text != ""
	}
	zones, rest, err := corefile.Stub(text, f)
	return strings.Join(zones, " "), rest, err == nil && len(zones) > 0
}

// with gives a text with ours as it should be, and without what is ours.
// The former holds whatever the error says is wrong.
func with(integration, text string, f corefile.Forward, beside []corefile.Beside) (string, error) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Insert(text, f, beside...)
	case fabric.DNSImport:
		return f.File(beside...)
	}
	return corefile.InsertStub(text, f)
}

func without(integration, text string, f corefile.Forward) (string, error) {
	switch integration {
	case fabric.DNSCoreDNS, fabric.DNSNodeLocal:
		return corefile.Remove(text)
	case fabric.DNSImport:
		return "", nil
	}
	return corefile.RemoveStub(text, f)
}

// besides gives the texts of CoreDNS next to the one that an integration writes.
func besides(integration string, all map[string]*corev1.ConfigMap) []corefile.Beside {
	var out []corefile.Beside
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
				out = append(out, corefile.Beside{Name: place + "/" + key, Text: data[key]})
			}
		}
	}
	return out
}

// domainKind is the kind of what is written into the cluster's own DNS.
type domainKind struct {
	*turn
	table  *table[*corev1.ConfigMap]
	undone map[string]*undone // by integration
}

// undone counts how often somebody took out what we wrote.
type undone struct {
	rest  string // all that is not ours, and what we want there
	right bool   // ours was as it should be when it was looked at last
	times int
	by    string
}

// KindDNS names the kind of what leads the cluster's own DNS to the agents.
const KindDNS = "dns"

// Name is KindDNS.
func (k *domainKind) Name() string { return KindDNS }

// Observe gives the places where anything of ours stands.
func (k *domainKind) Observe(context.Context) ([]Domain, error) {
	if k.undecided {
		return nil, k.table.unknown()
	}
	all, err := k.table.all()
	if err != nil {
		return nil, err
	}
	var out []Domain
	for integration, name := range mapOfDNS {
		o := all[dnsNamespace+"/"+name]
		if o == nil {
			continue
		}
		text := o.Data[keyOfDNS[integration]]
		block, rest, is := ours(integration, text, k.forward)
		beside := besides(integration, all)
		k.count(integration, text, rest, beside, o)
		if is {
			out = append(out, Domain{Integration: integration, Text: block, Whole: text, Beside: beside})
		}
	}
	return out, nil
}

// count looks whether somebody took out what was right.
func (k *domainKind) count(integration, text, rest string, beside []corefile.Beside, o *corev1.ConfigMap) {
	should, _ := with(integration, text, k.forward, beside)
	right := should == text
	rest += fmt.Sprint("\x00", k.forward, beside)
	u := k.undone[integration]
	if u == nil || u.rest != rest {
		k.undone[integration] = &undone{rest: rest, right: right}
		return
	}
	if u.right && !right {
		u.times++
		by, at := "somebody", ""
		for _, f := range o.GetManagedFields() {
			if f.Time != nil && f.Manager != FieldManager && f.Time.UTC().String() >= at {
				by, at = f.Manager, f.Time.UTC().String()
			}
		}
		u.by = by
	}
	u.right = right
}

// Normalize makes want the text that would stand there.
func (k *domainKind) Normalize(want, have Domain) Domain {
	want.Whole = have.Whole
	should, err := with(want.Integration, have.Whole, want.Forward, have.Beside)
	// With an error it stays a change, which tells it each time.
	if err == nil {
		want.Text, _, _ = ours(want.Integration, should, want.Forward)
	}
	return want
}

// Apply makes the changes.
func (k *domainKind) Apply(ctx context.Context, list []diff.Change[Domain]) error {
	return converge.Each(ctx, list, func(c diff.Change[Domain]) error {
		integration := c.Want.Integration
		if c.Op == diff.Delete {
			integration = c.Have.Integration
		}
		all, err := k.table.all()
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
		if err := k.write(ctx, c.Op, integration, o, besides(integration, all)); err != nil {
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

func (k *domainKind) write(ctx context.Context, op diff.Op, integration string, o *corev1.ConfigMap, beside []corefile.Beside) error {
	text, there := o.Data[keyOfDNS[integration]]
	if !there && isCorefile(integration) {
		return fmt.Errorf("there is no %s in it", keyOfDNS[integration])
	}
	var after string
	var wrong error
	if op == diff.Delete {
		after, wrong = without(integration, text, k.forward)
		delete(k.undone, integration)
	} else if u := k.undone[integration]; u != nil && u.times >= undoneMost {
		return fmt.Errorf("%w: %s took it out %d times; it is left to them until anything else is changed there. "+
			"Add it to what they write, or say another clusters[].dns, such as none", converge.ErrFight, u.by, u.times)
	} else {
		after, wrong = with(integration, text, k.forward, beside)
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
func newProperties(turn *turn, table *table[*clusterProperty]) *marked[Property, *clusterProperty] {
	return &marked[Property, *clusterProperty]{
		turn: turn, table: table,
		have: func(o *clusterProperty) Property { return Property{Name: o.Name, Value: o.Spec.Value} },
		write: func(ctx context.Context, c diff.Change[Property], seen *clusterProperty) error {
			o := table.body("", c.Want.Name, uidOf(seen))
			o.SetLabels(map[string]string{managedBy: manager})
			o.Object["spec"] = map[string]any{"value": c.Want.Value}
			return table.apply(ctx, o, seen != nil)
		},
	}
}
