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

	"hawser.dev/hawser/nodeagent/status"
	"hawser.dev/hawser/schema/fabric"
)

// Limits of events: a burst, then one per interval. The next event reports the number of dropped
// ones.
const (
	eventBurst   = 10
	eventSeconds = 20
	maxNote      = 1000 // bytes; the API accepts 1 024
)

// events reports changes of a node as Kubernetes events.
type events struct {
	client  *Client
	node    string
	uid     types.UID // of the HawserNode
	rate    flowcontrol.RateLimiter
	dropped int
	last    int64 // suffix of the last name, for unique names
}

// event is the content of one Kubernetes event.
type event struct{ kind, reason, action, message string }

// record sends events for the differences between two states. It does not retry failed events.
func (e *events) record(ctx context.Context, before, now NodeStatus) error {
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
		if (c.Status == metav1.ConditionTrue) == (c.Type == status.ConditionDrainRequested) {
			kind = "Warning"
		}
		message := c.Type + " is " + string(c.Status)
		if c.Message != "" {
			message += ": " + c.Message
		}
		out = append(out, event{kind, c.Reason, "Converge", message})
	}
	if before.Fabric != "" && before.Fabric != now.Fabric {
		out = append(out, event{"Normal", "FabricChanged", "Converge", "fabric changed from " + before.Fabric + " to " + now.Fabric})
	}
	for _, ev := range out {
		if !e.rate.TryAccept() {
			e.dropped++
			continue
		}
		if e.dropped > 0 {
			ev.message += fmt.Sprintf(" (and %d events before that were not sent)", e.dropped)
		}
		if err := e.send(ctx, ev); err != nil {
			return err
		}
		e.dropped = 0
	}
	return nil
}

// send writes one event. It returns an error if the server forbids the request, and ignores all
// other failures.
func (e *events) send(ctx context.Context, ev event) error {
	now := time.Now()
	e.last = max(e.last+1, now.UnixNano())
	object := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata":  map[string]any{"name": e.node + "." + strconv.FormatInt(e.last, 16), "namespace": metav1.NamespaceDefault},
		"eventTime": metav1.NewMicroTime(now).UTC().Format(metav1.RFC3339Micro),
		"type":      ev.kind, "reason": ev.reason, "action": ev.action, "note": clip(ev.message, maxNote),
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
