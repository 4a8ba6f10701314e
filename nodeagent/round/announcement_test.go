package round

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"hawser.dev/hawser/nodeagent/mcs"
	"hawser.dev/hawser/nodeagent/model"
)

// liveOf makes a state of exports such as "web 242.1.0.7" (ready, offered there), "web"
// (not ready) and "db [242.1.0.8 242.1.0.9]" (pods).
func liveOf(exports ...string) model.ClusterState {
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

func saidOf(l model.ClusterState) string {
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

// TestAnnouncement: what is new is told after the round, what is gone before it.
func TestAnnouncement(t *testing.T) {
	t.Parallel()
	tests := []struct{ name, before, next, meanwhile string }{
		{"a new export", "", "web 242.1.0.7", ""},
		{"beside another", "api 242.1.0.6", "api 242.1.0.6, web 242.1.0.7", "api ready [242.1.0.6]"},
		{"becomes ready", "web", "web 242.1.0.7", "web"},
		{"another address", "web 242.1.0.7", "web 242.1.0.8", "web ready [242.1.0.7]"},
		{"is not ready any more", "web 242.1.0.7", "web", "web"},
		{"is gone", "api 242.1.0.6, web 242.1.0.7", "api 242.1.0.6", "api ready [242.1.0.6]"},
		{"a pod comes and one goes", "db [242.1.0.8 242.1.0.9]", "db [242.1.0.9 242.1.0.10]", "db ready 242.1.0.9"},
		{"other pods only", "db [242.1.0.8]", "db [242.1.0.9]", "db"},
	}
	list := func(text string) model.ClusterState {
		if text == "" {
			return liveOf()
		}
		return liveOf(strings.Split(text, ", ")...)
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a exportAnnouncement
			a, say := a.startRound(list(tt.before))
			if say != nil {
				t.Error("a node that carries nothing says something")
			}
			a, said := a.finishRound()
			if want := saidOf(list(tt.before)); said == nil || saidOf(*said) != want {
				t.Fatalf("after the first round: %+v, want %q", said, want)
			}
			if a, say = a.startRound(list(tt.next)); say != nil {
				said = say
			}
			if saidOf(*said) != tt.meanwhile {
				t.Errorf("before the round: %q, want %q", saidOf(*said), tt.meanwhile)
			}
			if a, say = a.finishRound(); say != nil {
				said = say
			}
			if want := saidOf(list(tt.next)); saidOf(*said) != want {
				t.Errorf("after the round: %q, want %q", saidOf(*said), want)
			}
			if _, say = a.finishRound(); say != nil {
				t.Error("it is said twice")
			}
		})
	}
}

// TestAnnouncementAfterARestart says at once what the node carries from before.
func TestAnnouncementAfterARestart(t *testing.T) {
	t.Parallel()
	a := exportAnnouncement{Active: true}
	if _, said := a.startRound(liveOf("web 242.1.0.7")); said == nil || saidOf(*said) != "web ready [242.1.0.7]" {
		t.Errorf("it says %+v", said)
	}
}
