package round

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

// exportsOf returns a state of exports such as "web 242.1.0.7" (ready, served there), "web" (not
// ready) and "db [242.1.0.8 242.1.0.9]" (pods).
func exportsOf(exports ...string) model.ClusterState {
	out := model.ClusterState{Cluster: "g1"}
	for _, text := range exports {
		name, at, ready := strings.Cut(text, " ")
		e := model.ExportState{Namespace: "team-a", Name: name, Ready: ready}
		if pods, headless := strings.CutPrefix(at, "["); headless {
			for _, pod := range strings.Fields(strings.TrimSuffix(pods, "]")) {
				e.Hosts = append(e.Hosts, model.ExportHost{Name: pod, IPs: []netip.Addr{netip.MustParseAddr(pod)}})
			}
		} else if ready {
			e.Offer = &mcs.Offer{Addrs: []netip.Addr{netip.MustParseAddr(at)}}
		}
		out.Exports = append(out.Exports, e)
	}
	return out
}

func textOfState(l model.ClusterState) string {
	var out []string
	for _, e := range l.Exports {
		text := e.Name
		if e.Ready {
			text += " ready"
		}
		if e.Offer != nil {
			text += fmt.Sprint(" ", e.Offer.Addrs)
		}
		for _, h := range e.Hosts {
			text += " " + h.Name
		}
		out = append(out, text)
	}
	return strings.Join(out, ", ")
}

// TestAnnouncement checks that new exports are announced after the round, and removals before it.
func TestAnnouncement(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, next, meanwhile string }{
		{"a new export", "", "web 242.1.0.7", ""},
		{"a second export", "api 242.1.0.6", "api 242.1.0.6, web 242.1.0.7", "api ready [242.1.0.6]"},
		{"becomes ready", "web", "web 242.1.0.7", "web"},
		{"another address", "web 242.1.0.7", "web 242.1.0.8", "web ready [242.1.0.7]"},
		{"becomes unready", "web 242.1.0.7", "web", "web"},
		{"removed", "api 242.1.0.6, web 242.1.0.7", "api 242.1.0.6", "api ready [242.1.0.6]"},
		{"a new pod and a deleted one", "db [242.1.0.8 242.1.0.9]", "db [242.1.0.9 242.1.0.10]", "db ready 242.1.0.9"},
		{"other pods only", "db [242.1.0.8]", "db [242.1.0.9]", "db"},
	}
	list := func(text string) model.ClusterState {
		if text == "" {
			return exportsOf()
		}
		return exportsOf(strings.Split(text, ", ")...)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a exportAnnouncement
			a, update := a.startRound(list(tt.before))
			if update != nil {
				t.Error("a node without traffic announces a state")
			}
			a, announced := a.finishRound()
			if want := textOfState(list(tt.before)); announced == nil || textOfState(*announced) != want {
				t.Fatalf("after the first round: %+v, want %q", announced, want)
			}
			if a, update = a.startRound(list(tt.next)); update != nil {
				announced = update
			}
			if textOfState(*announced) != tt.meanwhile {
				t.Errorf("before the round: %q, want %q", textOfState(*announced), tt.meanwhile)
			}
			if a, update = a.finishRound(); update != nil {
				announced = update
			}
			if want := textOfState(list(tt.next)); textOfState(*announced) != want {
				t.Errorf("after the round: %q, want %q", textOfState(*announced), want)
			}
			if _, update = a.finishRound(); update != nil {
				t.Error("announced twice")
			}
		})
	}
}

// TestAnnouncementAfterARestart checks that a restarted agent announces at once the exports that
// the node already serves.
func TestAnnouncementAfterARestart(t *testing.T) {
	t.Parallel()
	a := exportAnnouncement{Active: true}
	if _, announced := a.startRound(exportsOf("web 242.1.0.7")); announced == nil || textOfState(*announced) != "web ready [242.1.0.7]" {
		t.Errorf("announced %+v", announced)
	}
}
