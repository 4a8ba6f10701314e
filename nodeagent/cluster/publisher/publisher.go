// Package publisher computes from the last converge round the objects that a gateway writes into
// its cluster's API. It runs an apiobjects.Writer while the node is a gateway.
package publisher

import (
	"context"
	"log/slog"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"hawser.dev/hawser/internal/trigger"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects"
	"hawser.dev/hawser/nodeagent/cluster/apiobjects/corefile"
	"hawser.dev/hawser/nodeagent/cluster/kube"
	"hawser.dev/hawser/nodeagent/converge"
	"hawser.dev/hawser/nodeagent/desired"
	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/peer/health"
	"hawser.dev/hawser/nodeagent/projection"
	"hawser.dev/hawser/nodeagent/round"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Input is the name of the written objects in the list of inputs in the status.
const Input = "objects"

// Observed is the result of the last round.
type Observed struct {
	round.Outcome
	Links    health.Snapshot
	Draining bool // this node's gateway is drained or retiring
}

// Publisher writes the objects of this node's gateway into the cluster's API while the node is a
// gateway. It has a separate engine and goroutines, so that the data path never waits for the API.
type Publisher struct {
	log    *slog.Logger
	client *kube.Client
	source *kube.FactsReader
	seen   func() Observed
	node   string
	wake   trigger.Trigger // after each round

	// Only the engine's goroutine uses these fields.
	last          *projection.Input
	wanted        mcs.DesiredObjects
	gatewaySlices []apiobjects.GatewaySlice
	generation    int
	forward       corefile.Forward

	report    atomic.Pointer[converge.Report]
	rank      atomic.Int64
	publisher atomic.Pointer[apiobjects.Writer]
}

// New returns the Publisher of a node, nil without a Kubernetes API. A nil Publisher writes
// nothing. seen must be safe for concurrent use.
func New(config kube.Config, source *kube.FactsReader, node string, seen func() Observed, log *slog.Logger) (*Publisher, error) {
	if source == nil {
		return nil, nil
	}
	// A separate client: a shared limit on requests would delay other users.
	client, err := kube.Open(config)
	if err != nil {
		return nil, err
	}
	return &Publisher{
		log: log.With("part", "objects"), client: client, source: source, node: node, wake: trigger.New(), seen: seen,
	}, nil
}

// Trigger notifies the Publisher of a new round.
func (p *Publisher) Trigger() {
	if p != nil {
		p.wake.Fire()
	}
}

// Run writes while this node is a gateway, until ctx is done.
func (p *Publisher) Run(ctx context.Context) {
	if p == nil {
		return
	}
	var wait sync.WaitGroup
	defer wait.Wait()
	var stop context.CancelFunc
	for {
		gateway := p.isGateway()
		switch {
		case gateway && stop == nil:
			var own context.Context
			own, stop = context.WithCancel(ctx)
			p.last = nil
			publisher := apiobjects.New(apiobjects.Config{
				Client: p.client.Dynamic, Exports: p.source.Exports, Imports: p.source.Imports, Log: p.log,
				Source:   p.desired,
				OnReport: func(r converge.Report) { p.report.Store(&r) },
			})
			p.publisher.Store(publisher)
			wait.Go(func() { publisher.Run(own) })
		case !gateway && stop != nil:
			stop()
			wait.Wait()
			stop = nil
			p.publisher.Store(nil)
			p.report.Store(nil)
		}
		if publisher := p.publisher.Load(); publisher != nil {
			publisher.Trigger()
		}
		select {
		case <-ctx.Done():
			if stop != nil {
				stop()
			}
			return
		case <-p.wake:
		}
	}
}

// isGateway reports whether this node is a gateway. During a decommission a gateway remains a
// gateway until the fabric changes again.
func (p *Publisher) isGateway() bool {
	v := p.seen()
	if v.Node == nil {
		return false
	}
	own := v.Input.Fabric.Cluster(v.Input.Cluster)
	return own != nil && own.GatewayOn(p.node) != nil || own == nil && v.Input.Fabric.Decommission && p.publisher.Load() != nil
}

// desired returns the desired content of the API for the last round.
func (p *Publisher) desired(context.Context) (apiobjects.Desired, string, bool) {
	v := p.seen()
	if v.Node == nil {
		return apiobjects.Desired{}, "", false
	}
	in := v.Input
	in.Memo = nil // owned by the data path
	if p.last == nil || !round.SameInput(*p.last, in) {
		if state := projection.MCS(in); p.last == nil || p.last.Fabric != in.Fabric || !reflect.DeepEqual(state, p.wanted) {
			p.wanted = state
			p.generation++
		}
		var gatewaySlices []apiobjects.GatewaySlice
		if own := in.Fabric.Cluster(in.Cluster); own != nil && !in.Fabric.Decommission {
			gatewaySlices = apiobjects.GatewaySlicesOf(own, in.Facts)
		}
		if !reflect.DeepEqual(gatewaySlices, p.gatewaySlices) {
			p.gatewaySlices = gatewaySlices
			p.generation++
		}
		p.last = &in
	}
	want := apiobjects.Desired{State: p.wanted, GatewaySlices: p.gatewaySlices, Decommission: in.Fabric.Decommission}
	own := in.Fabric.Cluster(in.Cluster)
	if own != nil {
		p.forward = corefile.ForwardOf(in.Fabric, own)
		want.WriteOrder = rankOf(own, p.node, v.Draining, v.Links)
	}
	// A decommissioned cluster is not in the fabric, but its forwarding must still be removed.
	want.Forward = p.forward
	if own != nil && !in.Fabric.Decommission {
		want.DNS, want.PreferCustom = own.ClusterDNS, own.PreferCustomDNS
	}
	p.rank.Store(int64(want.WriteOrder))
	return want, in.Digest + "-" + strconv.Itoa(p.generation), true
}

// rankOf returns the number of gateways that write before the gateway of a node: the live gateways
// before it in the fabric. A draining gateway is the last.
func rankOf(own *fabric.Cluster, node string, leaving bool, s health.Snapshot) int {
	rank := 0
	for i := range own.Gateways {
		g := &own.Gateways[i]
		if g.Node == node {
			if leaving {
				continue
			}
			break
		}
		if slices.ContainsFunc(s.Links, func(l health.Link) bool {
			return l.Target.Device == desired.NodeDevice && l.Target.Peer == health.GatewayID{Cluster: own.Name, Gateway: g.Name} && l.Alive()
		}) {
			rank++
		}
	}
	return rank
}

// DNSCleanedUp reports whether a decommission has removed Hawser's text from the configuration of
// the cluster's own DNS. It returns true without a decommission.
func (p *Publisher) DNSCleanedUp(in projection.Input) bool {
	if p == nil || !in.Fabric.Decommission || p.publisher.Load() == nil {
		return true
	}
	r := p.report.Load()
	return r != nil && strings.HasPrefix(r.Digest, in.Digest+"-") && !slices.ContainsFunc(
		slices.Concat(r.Failed, r.Blocked, r.Deferred, r.Fights), func(p converge.Problem) bool { return p.Kind == apiobjects.KindDNS })
}

// State returns the state of the written objects, nil if this node writes none.
func (p *Publisher) State() []status.InputState {
	objects, dns, writes := p.Errors()
	if !writes {
		return nil
	}
	out := status.InputState{Name: Input, From: "written by this gateway"}
	if rank := p.rank.Load(); rank > 0 {
		out.From = "written by others, " + strconv.FormatInt(rank, 10) + " before this gateway"
	}
	problems := slices.Concat(objects, dns)
	out.OK, out.Error = len(problems) == 0, strings.Join(problems, "\n")
	return []status.InputState{out}
}

// Errors returns the failures of the last pass for objects, and for the block in the cluster's DNS.
// writes reports whether this node writes objects.
func (p *Publisher) Errors() (objects, dns []string, writes bool) {
	if p == nil {
		return nil, nil, false
	}
	publisher, report := p.publisher.Load(), p.report.Load()
	if publisher == nil || report == nil {
		return nil, nil, false
	}
	objects = publisher.Problems()
	for _, failed := range slices.Concat(report.Failed, report.Fights) {
		text := converge.Texts([]converge.Problem{failed})
		if failed.Kind == apiobjects.KindDNS {
			dns = append(dns, text...)
		} else {
			objects = append(objects, text...)
		}
	}
	return objects, dns, true
}
