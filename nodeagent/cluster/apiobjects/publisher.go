package apiobjects

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	mcsv1 "sigs.k8s.io/mcs-api/pkg/apis/v1beta1"

	"hawser.dev/hawser/internal/diff"
	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/cluster/listwatch"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/schema/fabric"
)

// Desired is the desired content of the cluster's API.
type Desired struct {
	State mcs.DesiredObjects
	DNS   string // fabric.DNSCoreDNS, ...
	// PreferCustom selects fabric.DNSImport instead of DNS if the cluster's Corefile imports
	// such files.
	PreferCustom  bool
	Forward       corefile.Forward
	GatewaySlices []GatewaySlice
	// WriteOrder is the number of gateways of the cluster that write before this one.
	WriteOrder int
	// Decommission removes everything that Hawser wrote.
	Decommission bool
}

// Config configures a Writer.
type Config struct {
	Client dynamic.Interface
	// Exports and Imports return the ServiceExports and ServiceImports from the watches of the
	// facts.
	Exports List[*mcsv1.ServiceExport]
	Imports List[*mcsv1.ServiceImport]
	// Source returns the desired content and a digest that changes with the content. It returns
	// false while the content is unknown.
	Source converge.Source[Desired]
	// OnReport is called with each report in the goroutine of Run; nil means no call.
	OnReport func(converge.Report)
	Log      *slog.Logger
}

// Writer converges the cluster's API. It has a separate engine, so that a slow API server does not
// delay the data path.
type Writer struct {
	config  Config
	trigger trigger.Trigger
	context *writeContext
	engine  *converge.Engine[Desired]
	watches []watchRunner
	dns     map[string]List[*corev1.ConfigMap] // by name
}

// watchRunner is a watch without the type of its objects.
type watchRunner struct {
	resource schema.GroupVersionResource
	run      func(context.Context)
	err      func() error
}

// New returns a Writer. It sends no requests.
func New(c Config) *Writer {
	p := &Writer{config: c, trigger: trigger.New(), context: &writeContext{}, dns: map[string]List[*corev1.ConfigMap]{}}
	slicesOf := addWatch(p, &listwatch.Cache[*discoveryv1.EndpointSlice]{Resource: endpointSlices, Labels: discoveryv1.LabelManagedBy + "=" + sliceManager, Convert: DecodeTrimmed[*discoveryv1.EndpointSlice]})
	propertiesOf := addWatch(p, &listwatch.Cache[*clusterProperty]{Resource: clusterProperties, Convert: DecodeTrimmed[*clusterProperty]})
	var ofDNS []List[*corev1.ConfigMap]
	for _, name := range slices.Sorted(maps.Values(configMapOfDNS)) {
		p.dns[name] = addWatch(p, &listwatch.Cache[*corev1.ConfigMap]{Resource: configMaps, Namespace: dnsNamespace, Fields: "metadata.name=" + name, Convert: decode[*corev1.ConfigMap]})
		ofDNS = append(ofDNS, p.dns[name])
	}
	imports := newResourceCache(c.Client, serviceImports, "ServiceImport", c.Imports)
	p.engine = &converge.Engine[Desired]{
		Log: c.Log, OnReport: c.OnReport,
		Decommission: func(w Desired) bool { return w.Decommission },
		Stages: []converge.Stage[Desired]{
			converge.NewStage(newProperties(p.context, newResourceCache(c.Client, clusterProperties, "ClusterProperty", propertiesOf)),
				func(w Desired) []Property { return desiredProperties(w.State.Property) }, nil),
			converge.NewStage(&exportKind{writeContext: p.context, table: newResourceCache(c.Client, serviceExports, "ServiceExport", c.Exports)},
				func(w Desired) []Export { return converted(w.State.Exports, desiredExport) }, nil),
			converge.NewStage(newImports(p.context, imports),
				func(w Desired) []Import { return converted(w.State.Imports, desiredImport) }, nil),
			converge.NewStage(&sliceKind{writeContext: p.context, imports: imports, table: newResourceCache(c.Client, endpointSlices, "EndpointSlice", slicesOf)},
				func(w Desired) []Slice { return converted(w.State.Slices, desiredSlice) }, nil),
			converge.NewStage(newGatewaySlices(p.context, newResourceCache(c.Client, endpointSlices, "EndpointSlice", only(slicesOf, isGatewaySlice))),
				func(w Desired) []GatewaySlice { return w.GatewaySlices }, nil),
			converge.NewStage(&dnsKind{writeContext: p.context, reverts: map[string]*revertHistory{}, table: newResourceCache(c.Client, configMaps, "ConfigMap", together(ofDNS))},
				func(w Desired) []DNSForwarding { return desiredForwarding(w.DNS, w.Forward) }, nil),
		},
	}
	return p
}

func converted[A, B any](list []A, to func(A) B) []B {
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = to(a)
	}
	return out
}

// together joins lists. The joined list is synced as soon as one of them is synced.
func together[T any](lists []List[T]) List[T] {
	return func() ([]T, bool) {
		var out []T
		any := false
		for _, list := range lists {
			some, known := list()
			out, any = append(out, some...), any || known
		}
		return out, any
	}
}

func addWatch[T metav1.Object](p *Writer, w *listwatch.Cache[T]) List[T] {
	w.Client, w.OnChange = p.config.Client, p.Trigger
	p.watches = append(p.watches, watchRunner{w.Resource, w.Run, w.Err})
	return w.Objects
}

// Trigger requests a pass.
func (p *Writer) Trigger() { p.trigger.Fire() }

// Run converges the API until ctx is done.
func (p *Writer) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, w := range p.watches {
		all.Go(func() { w.run(ctx) })
	}
	p.engine.Run(ctx, p.source, p.trigger)
	all.Wait()
}

// source returns the desired content of the API and prepares the context of the pass.
func (p *Writer) source(ctx context.Context) (Desired, string, bool) {
	want, digest, ok := p.config.Source(ctx)
	if ok {
		*p.context = writeContext{order: want.WriteOrder, peersSynced: want.State.PeersSynced || want.Decommission, forward: want.Forward}
		if want.PreferCustom {
			var imported bool
			imported, p.context.dnsTargetUnknown = p.importsFiles()
			if imported {
				want.DNS = fabric.DNSImport
			}
			digest += "-" + want.DNS
		}
	}
	return want, digest, ok
}

// importsFiles reports whether the cluster's Corefile imports server blocks from the existing
// ConfigMap coredns-custom. undecided is true before the ConfigMaps have been read.
func (p *Writer) importsFiles() (imported, undecided bool) {
	custom, known := p.dns[configMapOfDNS[fabric.DNSImport]]()
	main, knownToo := p.dns[configMapOfDNS[fabric.DNSCoreDNS]]()
	if len(custom) == 0 || len(main) == 0 {
		return false, !known || !knownToo
	}
	return corefile.ImportsServers(main[0].Data[keyOfDNS[fabric.DNSCoreDNS]]), false
}

// Problems returns the failed watches with their fixes, one line each.
func (p *Writer) Problems() []string {
	var out []string
	for _, w := range p.watches {
		err := w.err()
		switch {
		case err == nil:
		case apierrors.IsNotFound(err) && w.resource != configMaps:
			out = append(out, fmt.Sprintf("the cluster has no resource %s: apply base/crds.yaml of the publish branch", w.resource.GroupResource()))
		case apierrors.IsForbidden(err):
			out = append(out, err.Error()+": grant it as base/rbac.yaml of the publish branch does")
		default:
			out = append(out, fmt.Sprintf("watch %s: %s", w.resource.GroupResource(), strings.ReplaceAll(err.Error(), "\n", " ")))
		}
	}
	return slices.Compact(out)
}

// delayPerGateway is the additional write delay of each gateway after the first.
const delayPerGateway = 2 * time.Second

// writeContext is the state of a pass that all kinds share. Only the engine's goroutine uses it.
type writeContext struct {
	order       int // gateways that write before this one
	peersSynced bool
	forward     corefile.Forward
	// dnsTargetUnknown is true before the ConfigMap for forward has been read.
	dnsTargetUnknown bool
}

// WriteDelay returns the delay that leaves time for the gateways that write before this one.
func (t *writeContext) WriteDelay() time.Duration { return time.Duration(t.order) * delayPerGateway }

// checkDelete returns an error for a deletion until the desired objects are complete.
func (t *writeContext) checkDelete(op diff.Op) error {
	if op == diff.Delete && !t.peersSynced {
		return converge.ErrBlocked{On: "the state of the other clusters"}
	}
	return nil
}

// changes reports whether a change affects one of the fields.
func changes[S diff.Spec](c diff.Change[S], names ...string) bool {
	return slices.ContainsFunc(c.Deltas(), func(d diff.Delta) bool { return slices.Contains(names, d.Name) })
}
