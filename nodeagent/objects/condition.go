package objects

import (
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"hawser.dev/hawser/nodeagent/mcs"
)

func conditionsOf(list []metav1.Condition) []mcs.Condition {
	var out []mcs.Condition
	for _, c := range list {
		out = append(out, mcs.Condition{Type: c.Type, Status: string(c.Status), Reason: c.Reason, Message: c.Message})
	}
	return sorted(out)
}

func sorted(list []mcs.Condition) []mcs.Condition {
	out := slices.Clone(list)
	slices.SortFunc(out, func(a, b mcs.Condition) int { return strings.Compare(a.Type, b.Type) })
	return out
}

func conditionText(list []mcs.Condition) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Type+"="+c.Status+" "+c.Reason+": "+c.Message)
	}
	return strings.Join(out, "; ")
}

// conditionBodies gives conditions as they are written. The time of the last
// change stays while the status does.
func conditionBodies(want []mcs.Condition, have []metav1.Condition, generation int64, now time.Time) []metav1.Condition {
	out := make([]metav1.Condition, 0, len(want))
	for _, c := range want {
		changed := metav1.NewTime(now)
		for _, h := range have {
			if h.Type == c.Type && string(h.Status) == c.Status && !h.LastTransitionTime.IsZero() {
				changed = h.LastTransitionTime
			}
		}
		out = append(out, metav1.Condition{
			Type: c.Type, Status: metav1.ConditionStatus(c.Status), Reason: c.Reason, Message: c.Message,
			LastTransitionTime: changed, ObservedGeneration: generation,
		})
	}
	return out
}
