package kube

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"hawser.dev/hawser/schema/fabric"
)

// Bounds of events: so many at once, then one for every so many seconds. What
// does not fit is counted in the next one.
const (
	eventsAtOnce  = 10
	eventsSeconds = 20
	maxNote       = 1000 // bytes; the API takes 1 024
)

// events reports changes of a node as Kubernetes events.
type events struct {
	client  *Client
	node    string
	uid     types.UID // of the HawserNode
	rate    flowcontrol.RateLimiter
	dropped int
	last    int64 // that made a name, so that no two are alike
}

// event is one thing that happened.
type event struct{ kind, reason, action, note string }

// of reports what changed between two states. What is told is gone from the list
// even if the server did not take it: events are no record.
func (e *events) of(ctx context.Context, before, now NodeStatus) error {
	var out []event
	for _, link := range slices.Sorted(maps.Keys(now.Up)) {
		was, known := before.Up[link]
		switch up := now.Up[link]; {
		case known && was && !up:
			out = append(out, event{"Warning", "LinkDown", "Probe", "link " + link + " is down"})
		case up && !was && (known || before.Up != nil):
			out = append(out, event{"Normal", "LinkUp", "Probe", "link " + link + " is up"})
		}
	}
	for _, c := range now.Conditions {
		i := slices.IndexFunc(before.Conditions, func(b metav1.Condition) bool { return b.Type == c.Type })
		if i < 0 || before.Conditions[i].Status == c.Status {
			continue
		}
		kind := "Normal"
		if (c.Status == metav1.ConditionTrue) == (c.Type == ConditionDrained) {
			kind = "Warning"
		}
		note := c.Type + " is " + string(c.Status)
		if c.Message != "" {
			note += ": " + c.Message
		}
		out = append(out, event{kind, c.Reason, "Converge", note})
	}
	if before.Fabric != "" && before.Fabric != now.Fabric {
		out = append(out, event{"Normal", "FabricChanged", "Converge", "fabric " + now.Fabric + " is in force, it was " + before.Fabric})
	}
	for _, happened := range out {
		if !e.rate.TryAccept() {
			e.dropped++
			continue
		}
		if e.dropped > 0 {
			happened.note += fmt.Sprintf(" (and %d events before that were not sent)", e.dropped)
		}
		if err := e.send(ctx, happened); err != nil {
			return err
		}
		e.dropped = 0
	}
	return nil
}

// send writes one event. A server that does not want it is no trouble; one that
// refuses us is.
func (e *events) send(ctx context.Context, what event) error {
	now := time.Now()
	e.last = max(e.last+1, now.UnixNano())
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":  map[string]any{"name": e.node + "." + strconv.FormatInt(e.last, 16), "namespace": metav1.NamespaceDefault},
		"eventTime": metav1.NewMicroTime(now).UTC().Format(metav1.RFC3339Micro),
		"type":      what.kind, "reason": what.reason, "action": what.action, "note": clip(what.note, maxNote),
		"reportingController": "hawser.dev/agent", "reportingInstance": e.node,
		"regarding": map[string]any{
			"apiVersion": HawserNodes.GroupVersion().String(), "kind": "HawserNode", "name": e.node, "uid": string(e.uid),
		},
	}}
	resource := schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}
	_, err := e.client.Dynamic.Resource(resource).Namespace(metav1.NamespaceDefault).Create(ctx, object, metav1.CreateOptions{FieldManager: fabric.FieldManager})
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("write events: %w", err)
	}
	return nil
}

// Conditions of a HawserNode.
const (
	// ConditionReady: the node is as it should be, and names are answered.
	ConditionReady = "Ready"
	// ConditionCurrent: what the agent lives from is read from its source, not from a copy.
	ConditionCurrent = "Current"
	// ConditionDrained: the gateway is to be left.
	ConditionDrained = "Drained"
)
