package kube

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"hawser.dev/hawser/internal/atomicfile"
	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// HawserNodes is the resource in which each agent reports the status of its node. The object has
// the node's name.
var HawserNodes = schema.GroupVersionResource{Group: "hawser.dev", Version: "v1alpha1", Resource: "hawsernodes"}

// NodeStatus is the status of a HawserNode.
type NodeStatus struct {
	Cluster string `json:"cluster"`
	Role    string `json:"role"` // gateway | worker
	// Gateway is the gateway that the node holds, if it was selected by labels.
	Gateway string     `json:"gateway,omitempty"`
	Version string     `json:"version,omitempty"`
	Fabric  string     `json:"fabric,omitempty"` // digest of the current fabric
	Links   *LinkCount `json:"links,omitempty"`  // of a gateway
	// LinkStates has at most MaxLinks links (ListLinks).
	LinkStates []LinkState `json:"linkStates,omitempty"`
	// NodeNetwork counts the paths to other nodes of the cluster; nil with nodeNetwork: tunnel.
	NodeNetwork *NodePathCount `json:"nodeNetwork,omitempty"`
	// RulesBootID is the ID of the boot in which the rules of the agent are in place. The other
	// nodes accept VXLAN from the node during that boot.
	RulesBootID string `json:"rulesBootID,omitempty"`
	// FabricProof and KeysProof are the proofs of the newest documents that a signer signed
	// (trust.Proof). New nodes of the cluster refuse older documents.
	FabricProof string `json:"fabricProof,omitempty"`
	KeysProof   string `json:"keysProof,omitempty"`
	// RulesRemoved reports that the agent removed its rules. If it is false, an empty
	// RulesBootID keeps the ID that this agent or a previous agent wrote.
	RulesRemoved bool `json:"-"`
	// Lost reports that the RulesBootID in the API differs from the written ID.
	Lost bool `json:"-"`
	// Problems has one problem per code, from status.Catalog.Summarize.
	Problems   []status.Problem   `json:"problems,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// Up maps the names of links to whether the link is up. Changes become events.
	Up map[string]bool `json:"-"`
}

// LinkCount counts the links to gateways of other clusters.
type LinkCount struct {
	Up    int `json:"up"`
	Total int `json:"total"`
}

// NodePathCount counts the paths from a node to gateways of its cluster, or from a gateway to other
// nodes, by address.
type NodePathCount struct {
	Direct int    `json:"direct"`
	VXLAN  int    `json:"vxlan"`
	Reason string `json:"reason,omitempty"` // why the first path that is not direct needs VXLAN
}

// MaxLinks is the maximum number of links in a HawserNode: 512 links take at most 120 KB.
const MaxLinks = 512

// LinkState is the state of one link of a gateway.
type LinkState struct {
	Gateway       string `json:"gateway"` // of this node
	RemoteCluster string `json:"remoteCluster"`
	RemoteGateway string `json:"remoteGateway"`
	State         string `json:"state"`              // Up | Down | Connecting
	Endpoint      string `json:"endpoint,omitempty"` // address and port of the remote gateway in use
	Active        bool   `json:"active,omitempty"`   // the active link of the pair of clusters
	Since         string `json:"since,omitempty"`    // start of State, RFC 3339
	// RTT is the mean round-trip time in microseconds; 0 = not measured. Loss is the number of
	// lost probes of 1000. suppressNoise limits their writes.
	RTT  int64 `json:"rttMicroseconds,omitempty"`
	Loss int   `json:"lossPerMille,omitempty"`
}

// States of a link.
const (
	LinkUp         = "Up"
	LinkDown       = "Down"
	LinkConnecting = "Connecting" // no reply yet
)

// ListLinks returns at most MaxLinks links, sorted by the names of their ends. If links has more,
// it prefers links that are not up, then active links.
func ListLinks(links []LinkState) []LinkState {
	byName := func(a, b LinkState) int {
		return cmp.Or(cmp.Compare(a.RemoteCluster, b.RemoteCluster), cmp.Compare(a.Gateway, b.Gateway), cmp.Compare(a.RemoteGateway, b.RemoteGateway))
	}
	states := slices.SortedFunc(slices.Values(links), byName)
	if len(states) > MaxLinks {
		priority := func(l LinkState) int {
			switch {
			case l.State != LinkUp:
				return 0
			case l.Active:
				return 1
			}
			return 2
		}
		slices.SortStableFunc(states, func(a, b LinkState) int { return cmp.Compare(priority(a), priority(b)) })
		states = states[:MaxLinks]
		slices.SortFunc(states, byName)
	}
	return states
}

// Roles of a node.
const (
	Gateway = "gateway"
	Worker  = "worker"
)

// Intervals of a Reporter.
const (
	reportInterval   = 3 * time.Second // between two reads of the status, and so between two writes
	maxReportBackoff = time.Minute     // maximum backoff after errors
	reportTimeout    = 10 * time.Second
	resyncInterval   = 10 * time.Minute       // between two writes of an unchanged status
	lostInterval     = 10 * time.Second       // the same if the API has lost the RulesBootID
	firstInterval    = 500 * time.Millisecond // between two reads until the rules of the node are reported
	// measureInterval is the minimum time between two writes of measurements only. It limits
	// the load of the API server: measurements may be a minute old.
	measureInterval = time.Minute
)

// Reporter writes the status of this node to its HawserNode. It retries failed writes. No other
// part of the agent waits for a Reporter.
type Reporter struct {
	store      reportStore
	node       string
	log        *slog.Logger
	nodeStatus func() NodeStatus
	interval   time.Duration
	written    *NodeStatus
	writtenAt  time.Time

	mu       sync.Mutex
	err      error // of the last write
	outdated bool  // see Outdated
}

// NewReporter returns a Reporter. nodeStatus must be cheap, because it runs at each interval.
func NewReporter(client *Client, node string, log *slog.Logger, nodeStatus func() NodeStatus) *Reporter {
	rate := flowcontrol.NewTokenBucketRateLimiter(1.0/eventSeconds, eventBurst)
	store := &apiReport{client: client, node: node, events: &events{client: client, node: node, rate: rate}}
	return &Reporter{store: store, node: node, log: log, nodeStatus: nodeStatus, interval: reportInterval}
}

// NewFileReporter returns a Reporter that writes the HawserNode to a file in dir, for nodes without
// a Kubernetes API.
func NewFileReporter(dir, node string, log *slog.Logger, nodeStatus func() NodeStatus) *Reporter {
	return &Reporter{store: fileReport{dir: dir, node: node}, node: node, log: log, nodeStatus: nodeStatus, interval: reportInterval}
}

// reportStore stores the HawserNode of one node.
type reportStore interface {
	// read returns the status that a previous agent wrote; zero if absent.
	read(ctx context.Context) (NodeStatus, error)
	write(ctx context.Context, status NodeStatus) error
	// event writes Kubernetes events for the differences between two written states.
	event(ctx context.Context, before, now NodeStatus) error
}

// Run reports until ctx is done.
func (r *Reporter) Run(ctx context.Context) {
	// Until the rules of this boot are reported, the other nodes drop VXLAN from this node.
	reported := false
	next, backoff := min(firstInterval, r.interval), time.Duration(0)
	for sleep(ctx, next) {
		rules, outdated, err := r.writeOnce(ctx)
		r.record(ctx, outdated, err)
		reported = reported || rules && !outdated
		next = r.interval
		if !reported {
			next = min(firstInterval, r.interval)
		}
		if err != nil {
			backoff = min(2*max(backoff, r.interval), maxReportBackoff)
			// Spread the agents of a cluster when its API server is back.
			next = backoff/2 + rand.N(backoff)
		} else {
			backoff = 0
		}
	}
}

// sleep waits for d. It returns false if ctx is done first.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// record stores the result of a write. It logs when writes begin to fail and when they succeed
// again.
func (r *Reporter) record(ctx context.Context, outdated bool, err error) {
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	was := r.err
	r.err, r.outdated = err, outdated
	r.mu.Unlock()
	switch {
	case err != nil && was == nil:
		r.log.Warn("HawserNode not written", "node", r.node, "err", err)
	case err == nil && was != nil:
		r.log.Info("HawserNode written", "node", r.node)
	}
}

// Err returns the error of the last write.
func (r *Reporter) Err() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Outdated reports whether the HawserNode lacks the current status, because its last read or write
// failed.
func (r *Reporter) Outdated() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.outdated
}

// writeOnce writes the status if it changed. rules reports whether the status has the rules of this
// boot, or their removal. outdated reports whether the HawserNode then lacks the current status. If
// only an event cannot be written, writeOnce returns an error, and outdated is false.
func (r *Reporter) writeOnce(ctx context.Context) (rules, outdated bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	want := r.nodeStatus()
	if r.written == nil {
		before, err := r.store.read(ctx)
		if err != nil {
			return false, true, err
		}
		r.written = &before
	}
	rules = want.RulesBootID != "" || want.RulesRemoved
	if !rules {
		want.RulesBootID = r.written.RulesBootID
	}
	now := time.Now()
	lost := want.Lost && now.Sub(r.writtenAt) >= lostInterval
	want.Lost, want.RulesRemoved = false, false
	// Each condition has the time of its last change.
	want.Conditions = slices.Clone(want.Conditions)
	for i := range want.Conditions {
		c := &want.Conditions[i]
		c.LastTransitionTime = metav1.NewTime(now.UTC().Truncate(time.Second))
		for _, b := range r.written.Conditions {
			if b.Type == c.Type && b.Status == c.Status {
				c.LastTransitionTime = b.LastTransitionTime
			}
		}
	}
	if reduced := suppressNoise(*r.written, want, now.Sub(r.writtenAt)); reflect.DeepEqual(*r.written, reduced) {
		if now.Sub(r.writtenAt) < resyncInterval && !lost {
			return rules, false, nil
		}
		want = reduced // unchanged; the write restores a deleted object
	}
	before := *r.written
	if err := r.store.write(ctx, want); err != nil {
		return false, true, err
	}
	r.written, r.writtenAt = &want, now
	return rules, false, r.store.event(ctx, before, want)
}

// fileReport is a HawserNode in a file.
type fileReport struct{ dir, node string }

func (r fileReport) path() string { return filepath.Join(r.dir, r.node+".json") }

func (r fileReport) read(context.Context) (NodeStatus, error) {
	raw, err := os.ReadFile(r.path())
	if errors.Is(err, fs.ErrNotExist) {
		return NodeStatus{}, nil
	}
	var object struct{ Status NodeStatus }
	if err == nil {
		err = json.Unmarshal(raw, &object)
	}
	if err != nil {
		return NodeStatus{}, fmt.Errorf("read HawserNode %s: %w", r.node, err)
	}
	return object.Status, nil
}

func (r fileReport) write(_ context.Context, status NodeStatus) error {
	raw, err := json.Marshal(map[string]any{
		"apiVersion": HawserNodes.GroupVersion().String(), "kind": hawserNodeKind, "metadata": map[string]any{"name": r.node}, "status": status,
	})
	if err == nil {
		err = atomicfile.Replace(r.path(), raw, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write HawserNode %s: %w", r.node, err)
	}
	return nil
}

func (r fileReport) event(context.Context, NodeStatus, NodeStatus) error { return nil }

// apiReport is a HawserNode in the Kubernetes API.
type apiReport struct {
	client *Client
	node   string
	events *events
	uid    types.UID // of the node
}

// read also reads the UID of the node, which owns the HawserNode.
func (r *apiReport) read(ctx context.Context) (NodeStatus, error) {
	object, err := r.client.Dynamic.Resource(HawserNodes).Get(ctx, r.node, metav1.GetOptions{})
	var before NodeStatus
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return before, fmt.Errorf("read HawserNode %s: %w", r.node, err)
	default:
		before, _ = statusOf(object)
	}
	nodeResource := schema.GroupVersionResource{Version: "v1", Resource: string(nodes)}
	node, err := r.client.Dynamic.Resource(nodeResource).Get(ctx, r.node, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return before, fmt.Errorf("read node %s: %w", r.node, err)
	default:
		r.uid = node.GetUID()
	}
	return before, nil
}

func (r *apiReport) write(ctx context.Context, status NodeStatus) error {
	err := r.apply(ctx, status, "status")
	if apierrors.IsNotFound(err) {
		if err = r.apply(ctx, NodeStatus{}, ""); err == nil {
			err = r.apply(ctx, status, "status")
		}
	}
	return err
}

func (r *apiReport) event(ctx context.Context, before, now NodeStatus) error {
	return r.events.record(ctx, before, now)
}

// apply writes the object (empty subresource) or its status. The node owns the object, so
// Kubernetes deletes both together.
func (r *apiReport) apply(ctx context.Context, status NodeStatus, subresource string) error {
	object := map[string]any{
		"apiVersion": HawserNodes.GroupVersion().String(), "kind": hawserNodeKind,
	}
	metadata := map[string]any{"name": r.node}
	if subresource == "" {
		metadata["labels"] = map[string]any{fabric.ManagedByLabel: fabric.ManagedByValue}
		if r.uid != "" {
			metadata["ownerReferences"] = []any{map[string]any{
				"apiVersion": "v1", "kind": "Node", "name": r.node, "uid": string(r.uid),
			}}
		}
	} else {
		object["status"] = status
	}
	object["metadata"] = metadata
	raw, err := json.Marshal(object)
	if err != nil {
		return fmt.Errorf("write HawserNode %s: %w", r.node, err)
	}
	force := true
	options := metav1.PatchOptions{FieldManager: fabric.FieldManager, Force: &force}
	var subresources []string
	if subresource != "" {
		subresources = append(subresources, subresource)
	}
	written, err := r.client.Dynamic.Resource(HawserNodes).Patch(ctx, r.node, types.ApplyPatchType, raw, options, subresources...)
	if err != nil {
		return fmt.Errorf("write HawserNode %s: %w", r.node, err)
	}
	r.events.uid = written.GetUID()
	return nil
}

// A difference is noise if it is at most a fifth of the larger value. It is also noise below half a
// millisecond of the round-trip time, or below two percent of the probes.
const (
	relativeNoise = 5   // of the larger one, as a divisor
	minRTTChange  = 500 // microseconds
	minLossChange = 20  // of 1000 probes
)

// suppressNoise returns want with the written measurements. It returns want unchanged if a
// measurement differs by more than noise at least measureInterval after the last write. It also
// does so for the first measurement of a link, and if the number of links changed.
func suppressNoise(written, want NodeStatus, since time.Duration) NodeStatus {
	if len(written.LinkStates) != len(want.LinkStates) {
		return want
	}
	changed := func(a, b, least int64) bool { return max(a-b, b-a) >= least && max(a-b, b-a)*relativeNoise > max(a, b) }
	states := slices.Clone(want.LinkStates)
	for i := range states {
		was, now := written.LinkStates[i], &states[i]
		first := was.RTT == 0 && now.RTT != 0
		if first || since >= measureInterval && (changed(was.RTT, now.RTT, minRTTChange) || changed(int64(was.Loss), int64(now.Loss), minLossChange)) {
			return want
		}
		now.RTT, now.Loss = was.RTT, was.Loss
	}
	want.LinkStates = states
	return want
}

// clip shortens a text to a number of bytes.
func clip(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return text[:limit-3] + "..."
}
