package lab

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"
)

func TestLinkFault(t *testing.T) {
	t.Parallel()
	tests := []struct {
		have    linkFault
		fault   Fault
		want    linkFault
		wantErr string
	}{
		{have: linkFault{}, fault: Fault{Kind: "cut"}, want: linkFault{Cut: true}},
		{have: linkFault{}, fault: Fault{Kind: "cut", Direction: DirectionIn}, want: linkFault{CutIn: true}},
		{have: linkFault{CutIn: true}, fault: Fault{Kind: "cut", Direction: DirectionOut}, want: linkFault{CutIn: true, CutOut: true}},
		{have: linkFault{Cut: true}, fault: Fault{Kind: "delay", Value: "20ms"}, want: linkFault{Cut: true, Delay: 20 * time.Millisecond}},
		{have: linkFault{Delay: time.Second}, fault: Fault{Kind: "delay", Value: "0"}, want: linkFault{}},
		{have: linkFault{}, fault: Fault{Kind: "loss", Value: "2.5%"}, want: linkFault{LossIn: 0.025, LossOut: 0.025}},
		{have: linkFault{LossOut: 1}, fault: Fault{Kind: "loss", Direction: DirectionIn, Value: "10"}, want: linkFault{LossIn: 0.1, LossOut: 1}},
		{have: linkFault{LossIn: 0.1, LossOut: 1}, fault: Fault{Kind: "loss", Value: "0"}, want: linkFault{}},
		{have: linkFault{}, fault: Fault{Kind: "mtu", Value: "1400"}, want: linkFault{MTU: 1400}},
		{have: linkFault{MTU: 1400}, fault: Fault{Kind: "mtu", Value: "0"}, want: linkFault{}},
		{have: linkFault{BlockIn: "icmp"}, fault: Fault{Kind: "block", Value: "from/10.7.0.0/16"}, want: linkFault{BlockIn: "from/10.7.0.0/16,icmp", BlockOut: "from/10.7.0.0/16"}},
		{have: linkFault{Cut: true, CutOut: true, LossIn: 1, Delay: 1, MTU: 600}, fault: Fault{Kind: "heal"}, want: linkFault{}},
		{fault: Fault{Kind: "loss", Value: "101"}, wantErr: `loss "101": it is a percentage, such as 5%; 0 heals`},
		{fault: Fault{Kind: "loss", Value: "NaN"}, wantErr: `loss "NaN": it is a percentage, such as 5%; 0 heals`},
		{fault: Fault{Kind: "loss", Value: "-1"}, wantErr: `loss "-1": it is a percentage, such as 5%; 0 heals`},
		{fault: Fault{Kind: "delay", Value: "fast"}, wantErr: `delay "fast": it is a duration up to 10s, such as 20ms; 0 heals`},
		{fault: Fault{Kind: "delay", Value: "11s"}, wantErr: `delay "11s": it is a duration up to 10s, such as 20ms; 0 heals`},
		{fault: Fault{Kind: "block", Value: "from/10.7"}, wantErr: `block "from/10.7": it is udp, udp/PORT, udp/PORT-PORT, icmp or from/PREFIX`},
		{fault: Fault{Kind: "mtu", Value: "575"}, wantErr: `mtu "575": it is a number of bytes from 576 to 1500; 0 heals`},
		{fault: Fault{Kind: "mtu", Value: "big"}, wantErr: `mtu "big": it is a number of bytes from 576 to 1500; 0 heals`},
	}
	for _, tt := range tests {
		got, err := tt.have.apply(tt.fault)
		switch {
		case tt.wantErr != "":
			if err == nil || err.Error() != tt.wantErr {
				t.Errorf("%+v with %+v: error %v, want %s", tt.have, tt.fault, err, tt.wantErr)
			}
		case err != nil || got != tt.want:
			t.Errorf("%+v with %+v: %+v, %v; want %+v", tt.have, tt.fault, got, err, tt.want)
		}
	}
}

func TestFaultArguments(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fault Fault
		want  string
	}{
		{Fault{Kind: "explode", Target: "a/n"}, `unknown fault "explode": see hawser lab fault --help`},
		{Fault{Kind: "cut"}, "cut: name a node, CLUSTER/NODE"},
		{Fault{Kind: "cut", Target: "a/n", Side: "dmz"}, `link "dmz": must be wan (on gateways) or lan`},
		{Fault{Kind: "cut", Target: "a/n", Direction: "up"}, `direction "up": must be in or out, as the node sees it; omit it for both`},
		{Fault{Kind: "cut", Target: "a/n", Value: "5%"}, `cut: has no value, got "5%"`},
		{Fault{Kind: "heal", Target: "a/n", Direction: "in"}, `heal: has no direction, got "in"`},
		{Fault{Kind: "delay", Target: "a/n"}, "delay: needs a duration up to 10s, such as 20ms; 0 heals"},
		{Fault{Kind: "delay", Target: "a/n", Direction: "in", Value: "1s"}, `delay: has no direction, got "in"`},
		{Fault{Kind: "loss", Target: "a/n", Direction: "in"}, "loss: needs a percentage, such as 5%; 0 heals"},
		{Fault{Kind: "mtu", Target: "a/n"}, "mtu: needs a number of bytes from 576 to 1500; 0 heals"},
		{Fault{Kind: "reboot", Target: "a/n", Side: "wan"}, `reboot: has no link, got "wan"`},
		{Fault{Kind: "kill-tunnel", Target: "a/n", Value: "x"}, `kill-tunnel: has no value, got "x"`},
		{Fault{Kind: "stop-sync", Side: "wan"}, `stop-sync: has no link, got "wan"`},
		{Fault{Kind: "stop-sync"}, ""},
		{Fault{Kind: "upgrade-agent", Target: "a/n"}, ""},
		{Fault{Kind: "loss", Target: "a/n", Side: "lan", Direction: "out", Value: "1"}, ""},
	}
	for _, tt := range tests {
		_, err := tt.fault.check()
		if text := fmt.Sprint(err); text != tt.want && (err != nil || tt.want != "") {
			t.Errorf("%+v: %s, want %q", tt.fault, text, tt.want)
		}
	}
	seen := map[string]bool{}
	for _, k := range faultKinds() {
		if seen[k.name] || k.help == "" || k.apply == nil {
			t.Errorf("kind %+v", k)
		}
		seen[k.name] = true
	}
}

// TestReplacedRulesKeepMatching checks that rules masquerade packets without a set. A set of a
// table that is being replaced matches nothing.
func TestReplacedRulesKeepMatching(t *testing.T) {
	t.Parallel()
	prefixes := func(texts ...string) (out []netip.Prefix) {
		for _, text := range texts {
			out = append(out, netip.MustParsePrefix(text))
		}
		return out
	}
	n := &node{clusterPodCIDRs: prefixes("10.7.0.0/16", "10.8.0.0/16", "fd00:7::/64"), services: prefixes("10.77.0.0/16", "fd00:77::/112")}
	text := rules(n, nil)
	if strings.Contains(text, "!=") || !strings.Contains(text, "ip daddr 10.8.0.0/16 return") || strings.Count(text, "\n    masquerade\n") != 4 {
		t.Error(text)
	}
}

func TestDropRules(t *testing.T) {
	t.Parallel()
	tests := []struct {
		fault linkFault
		want  string
	}{
		{linkFault{Cut: true}, ""},
		{linkFault{CutIn: true, MTU: 1400}, `oifname "w1" drop; iifname "w1" meta length > 1400 drop`},
		{linkFault{LossIn: 0.5, LossOut: 1}, `oifname "w1" numgen random mod 10000 < 5000 drop; iifname "w1" drop`},
		{linkFault{LossOut: 0.1, Delay: 1}, `iifname "w1d" numgen random mod 10000 < 1000 drop`},
	}
	for _, tt := range tests {
		if got := strings.Join(tt.fault.drops("w1"), "; "); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.fault, got, tt.want)
		}
	}
}
